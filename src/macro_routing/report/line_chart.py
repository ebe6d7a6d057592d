"""Lines with their spread over one pair of axes: what changes along a pass, or with a setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from macro_routing.report.figure import Figure, Key
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale, round_step

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 400.0, 70.0, 20.0, 14.0, 50.0
_LOOKS = ("reference", "best", "median", "method-2", "method-3", "method-4")
"""Grey for what the others are compared with; then the report's colours, of which no two look alike in grey."""
_MOST_DOTS = 60


@dataclass(frozen=True)
class Point:
    """A place on a line, with its spread."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Line:
    """A named row of points; the first line of a figure is the one that others are compared with."""

    name: str
    points: Sequence[Point]
    has_bars: bool = False
    """Spread as bars with ends, for places that have nothing between them; else as a band."""


@dataclass(frozen=True)
class Axis:
    """What an axis means, and how its values are written."""

    meaning: str
    show: Callable[[float], str] = "{:g}".format
    names: Sequence[tuple[float, str]] = ()
    """Places that have names of their own, instead of round numbers."""


def lines_figure(  # noqa: PLR0913
    name: str, title: str, lines: Sequence[Line], x: Axis, y: Axis, *, level: tuple[float, str] | None = None
) -> Figure:
    """The chart; ``level`` is a line across, with its meaning."""
    drawing = _Lines(lines, x, y, level)
    looks = _looks(lines, level)
    legend: list[Key] = [
        (joined(element("path", d="M1 6L27 6", class_=look)), line.name)
        for look, line in zip(looks, lines, strict=True)
    ]
    if level is not None:
        legend.append((element("path", d="M1 6L27 6", class_="reference"), level[1]))
    return Figure(name, title, title, _WIDTH, _HEIGHT, drawing.shapes(looks), tuple(legend))


def _looks(lines: Sequence[Line], level: tuple[float, str] | None) -> list[str]:
    """With a level across, that one is grey and the lines are coloured."""
    first = 0 if level is None and len(lines) > 1 else 1
    return [_LOOKS[(first + place) % len(_LOOKS)] for place in range(len(lines))]


class _Lines:
    """Places of values."""

    def __init__(self, lines: Sequence[Line], x: Axis, y: Axis, level: tuple[float, str] | None) -> None:
        self.lines, self.x_axis, self.y_axis, self.level = lines, x, y, level
        points = [point for line in lines for point in line.points]
        places = [point.x for point in points]
        margin = 0.5 if x.names else 0.0
        self.x = Scale(min(places) - margin, max(places) + margin, _LEFT, _WIDTH - _RIGHT)
        values = [value for point in points for value in (point.low, point.high, point.y)]
        values += [level[0]] if level else []
        self.step = round_step(max(max(values) - min(values), 1e-6), 6)
        self.first, self.last = math.floor(min(values) / self.step), math.ceil(max(values) / self.step)
        self.last = max(self.last, self.first + 1)
        self.y = Scale(self.first * self.step, self.last * self.step, _HEIGHT - _BOTTOM, _TOP)

    def shapes(self, looks: Sequence[str]) -> Markup:
        drawn = list(zip(looks, self.lines, strict=True))
        return joined(
            *self._axes(),
            *([self._level(self.level[0])] if self.level else []),
            *[self._band(look, line) for look, line in drawn if not line.has_bars and len(line.points) > 1],
            *[part for look, line in drawn for part in self._line(look, line)],
        )

    def _axes(self) -> list[Markup]:
        parts = []
        for number in range(self.first, self.last + 1):
            value = number * self.step
            y = self.y(value)
            parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
            name = self.y_axis.show(round(value, 9)).replace("-", "−")
            parts.append(element("text", name, x=_LEFT - 8, y=y + 4, text_anchor="end"))
        bottom = _HEIGHT - _BOTTOM
        for place, name in self.x_axis.names or self._round_places():
            x = self.x(place)
            parts.append(element("text", name.replace("-", "−"), x=x, y=bottom + 19, text_anchor="middle"))
        middle, height = (_LEFT + _WIDTH - _RIGHT) / 2, (_TOP + bottom) / 2
        turned = f"translate(14 {height:.1f}) rotate(-90)"
        return [
            *parts,
            element("text", self.x_axis.meaning, x=middle, y=bottom + 40, text_anchor="middle", class_="strong"),
            element("text", self.y_axis.meaning, transform=turned, text_anchor="middle", class_="strong"),
        ]

    def _round_places(self) -> list[tuple[float, str]]:
        step = round_step(self.x.last - self.x.first, 12)
        numbers = range(math.ceil(self.x.first / step - 1e-9), math.floor(self.x.last / step + 1e-9) + 1)
        return [(number * step, self.x_axis.show(number * step)) for number in numbers]

    def _level(self, value: float) -> Markup:
        return element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=self.y(value), y2=self.y(value), class_="reference")

    def _band(self, look: str, line: Line) -> Markup:
        upper = [f"{self.x(point.x):.1f},{self.y(point.high):.1f}" for point in line.points]
        lower = [f"{self.x(point.x):.1f},{self.y(point.low):.1f}" for point in line.points]
        style = "band" if look == "reference" else f"band {look}-band"
        return element("polygon", points=" ".join([*upper, *reversed(lower)]), class_=style)

    def _line(self, look: str, line: Line) -> list[Markup]:
        where = [(self.x(point.x), self.y(point.y)) for point in line.points]
        parts = [element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in where), class_=look)]
        if line.has_bars:
            parts += [self._bar(look, point) for point in line.points]
        if len(where) <= _MOST_DOTS:
            dot = {"best": "best-point", "median": "median-point", "reference": "open-point"}.get(look, f"{look} dot")
            parts += [element("circle", cx=x, cy=y, r=3.4, class_=dot) for x, y in where]
        return parts

    def _bar(self, look: str, point: Point) -> Markup:
        x, low, high = self.x(point.x), self.y(point.low), self.y(point.high)
        style = "best-interval" if look == "best" else look
        return element("path", d=f"M{x - 4:.1f} {high:.1f}h8m-4 0V{low:.1f}m-4 0h8", class_=style)
