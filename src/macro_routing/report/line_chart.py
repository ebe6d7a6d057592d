"""Lines with their spread over one pair of axes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from macro_routing.report.chart_parts import (
    error_bar,
    format_points_attribute,
    horizontal_gridline,
    horizontal_line,
    line_key,
    rotated_text,
    svg_text,
)
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import use_minus_sign
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.scale import Scale, round_step

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 400.0, 70.0, 20.0, 14.0, 50.0
_LINE_CLASSES = ("reference", "best", "median", "method-2", "method-3", "method-4")
"""Grey for what the others are compared with; then the report's colours, which also differ in grey."""
_MAX_DOTS = 60


@dataclass(frozen=True)
class Point:
    """A point of a line, with its spread."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """A named series of points; the first line of a figure is the one that others are compared with."""

    name: str
    points: Sequence[Point]
    has_bars: bool = False
    """Spread as error bars, for points with nothing between them; else as a band."""


@dataclass(frozen=True)
class Axis:
    """What an axis means, and how its values are written."""

    meaning: str
    format_value: Callable[[float], str] = "{:g}".format
    names: Sequence[tuple[float, str]] = ()
    """Values that have names, instead of round numbers."""


def lines_figure(  # noqa: PLR0913
    name: str, title: str, lines: Sequence[Line], x: Axis, y: Axis, *, level: tuple[float, str] | None = None
) -> Figure:
    """The chart; ``level`` is a line across, with its meaning."""
    # With a level across, that one is grey and the lines are coloured.
    first = 0 if level is None and len(lines) > 1 else 1
    classes = [_LINE_CLASSES[(first + index) % len(_LINE_CLASSES)] for index in range(len(lines))]
    legend: list[LegendKey] = [(line_key(class_), line.name) for class_, line in zip(classes, lines, strict=True)]
    if level is not None:
        legend.append((line_key("reference"), level[1]))
    shapes = _LineChart(lines, x, y, level).draw_shapes(classes)
    return Figure(name, title, title, _WIDTH, _HEIGHT, shapes, tuple(legend))


class _LineChart:
    def __init__(self, lines: Sequence[Line], x: Axis, y: Axis, level: tuple[float, str] | None) -> None:
        self.lines, self.x_axis, self.y_axis, self.level = lines, x, y, level
        points = [point for line in lines for point in line.points]
        margin = 0.5 if x.names else 0.0
        first, last = min(point.x for point in points), max(point.x for point in points)
        self.x = Scale(first - margin, last + margin, _LEFT, _WIDTH - _RIGHT)
        values = [value for point in points for value in (point.low, point.high, point.y)]
        values += [level[0]] if level else []
        self.step = round_step(max(max(values) - min(values), 1e-6), 6)
        self.first, self.last = math.floor(min(values) / self.step), math.ceil(max(values) / self.step)
        self.last = max(self.last, self.first + 1)
        self.y = Scale(self.first * self.step, self.last * self.step, _HEIGHT - _BOTTOM, _TOP)

    def draw_shapes(self, classes: Sequence[str]) -> Markup:
        lines = list(zip(classes, self.lines, strict=True))
        level = [horizontal_line(self.y(self.level[0]), _LEFT, _WIDTH - _RIGHT, "reference")] if self.level else []
        return join_markup(
            *self._draw_axes(),
            *level,
            *(self._draw_band(class_, line) for class_, line in lines if not line.has_bars and len(line.points) > 1),
            *(part for class_, line in lines for part in self._draw_line(class_, line)),
        )

    def _draw_axes(self) -> list[Markup]:
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        values = [number * self.step for number in range(self.first, self.last + 1)]
        labels = [(value, use_minus_sign(self.y_axis.format_value(round(value, 9)))) for value in values]
        ticks = self.x_axis.names or self._round_ticks()
        return [
            *(horizontal_gridline(label, self.y(value), _LEFT, right) for value, label in labels),
            *(svg_text(use_minus_sign(name), self.x(value), bottom + 19) for value, name in ticks),
            svg_text(self.x_axis.meaning, (_LEFT + right) / 2, bottom + 40, class_="strong"),
            rotated_text(self.y_axis.meaning, 14, (_TOP + bottom) / 2, "strong"),
        ]

    def _round_ticks(self) -> list[tuple[float, str]]:
        step = round_step(self.x.last - self.x.first, 12)
        numbers = range(math.ceil(self.x.first / step - 1e-9), math.floor(self.x.last / step + 1e-9) + 1)
        return [(number * step, self.x_axis.format_value(number * step)) for number in numbers]

    def _draw_band(self, class_: str, line: Line) -> Markup:
        upper = [(self.x(point.x), self.y(point.high)) for point in line.points]
        lower = [(self.x(point.x), self.y(point.low)) for point in reversed(line.points)]
        style = "band" if class_ == "reference" else f"band {class_}-band"
        return svg_element("polygon", points=format_points_attribute([*upper, *lower]), class_=style)

    def _draw_line(self, class_: str, line: Line) -> list[Markup]:
        positions = [(self.x(point.x), self.y(point.y)) for point in line.points]
        parts = [svg_element("polyline", points=format_points_attribute(positions), class_=class_)]
        if line.has_bars:
            style = "best-interval" if class_ == "best" else class_
            parts += [error_bar(self.x(one.x), self.y(one.low), self.y(one.high), style) for one in line.points]
        if len(positions) <= _MAX_DOTS:
            dots = {"best": "best-point", "median": "median-point", "reference": "open-point"}
            dot = dots.get(class_, f"{class_} dot")
            parts += [svg_element("circle", cx=x, cy=y, r=3.4, class_=dot) for x, y in positions]
        return parts
