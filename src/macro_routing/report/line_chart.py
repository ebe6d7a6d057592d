"""Lines with their spread over one pair of axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale, list_nice_axis_ticks, list_ticks_within

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 400.0, 70.0, 20.0, 14.0, 50.0
_LINE_CLASSES = ("reference", "best", "median", "method-2", "method-3", "method-4")
"""Grey for what the others are compared with; then the report's colours, which also differ in grey."""
_MAX_DOTS = 60


@dataclass(frozen=True)
class ChartPoint:
    """A point of a line, with its spread."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class LineSeries:
    """A named series of points; the first line of a figure is the one that others are compared with."""

    name: str
    points: Sequence[ChartPoint]
    has_bars: bool = False
    """Spread as error bars, for points with nothing between them; else as a band."""


@dataclass(frozen=True)
class AxisLabels:
    """What an axis means, and how its values are written."""

    meaning: str
    format_value: Callable[[float], str] = "{:g}".format
    names: Sequence[tuple[float, str]] = ()
    """Values that have names, instead of round numbers."""


def draw_line_chart(  # noqa: PLR0913
    name: str,
    title: str,
    lines: Sequence[LineSeries],
    x: AxisLabels,
    y: AxisLabels,
    *,
    level: tuple[float, str] | None = None,
) -> Figure:
    """The chart; ``level`` is a line across, with its meaning."""
    points = [point for line in lines for point in line.points]
    margin = 0.5 if x.names else 0.0
    x_values = [point.x for point in points]
    x_scale = Scale(min(x_values) - margin, max(x_values) + margin, _LEFT, _WIDTH - _RIGHT)
    y_values = [value for point in points for value in (point.low, point.high, point.y)]
    y_ticks = list_nice_axis_ticks([*y_values, *([level[0]] if level else [])], max_parts=6, min_span=1e-6)
    # With a level across, that one is grey and the lines are coloured.
    first = 0 if level is None and len(lines) > 1 else 1
    classes = [_LINE_CLASSES[(first + index) % len(_LINE_CLASSES)] for index in range(len(lines))]
    shapes = render_template(
        "line_chart.svg",
        lines=list(zip(classes, lines, strict=True)),
        x=x_scale,
        y=Scale(y_ticks[0], y_ticks[-1], _HEIGHT - _BOTTOM, _TOP),
        x_axis=x,
        y_axis=y,
        x_ticks=x.names
        or [(tick, x.format_value(tick)) for tick in list_ticks_within(x_scale.first, x_scale.last, 12)],
        y_ticks=[(tick, y.format_value(round(tick, 9))) for tick in y_ticks],
        level=level,
        max_dots=_MAX_DOTS,
    )
    legend = [LegendKey("line", class_, line.name) for class_, line in zip(classes, lines, strict=True)]
    level_keys = [LegendKey("line", "reference", level[1])] if level else []
    return Figure(name, title, title, _WIDTH, _HEIGHT, shapes, legend + level_keys)
