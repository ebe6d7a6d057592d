"""Intervals one under the other, with a line to compare them with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.report.chart_parts import (
    horizontal_line,
    line_key,
    svg_text,
    vertical_gridline,
    vertical_line,
)
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import use_minus_sign
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.scale import Scale, round_step
from macro_routing.runs.result import LEVEL, ORACLE, RunResult

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _ROW = 860.0, 26.0, 90.0, 4.0, 42.0, 44.0
_MAX_NAME = 90
GAIN, LOSS, OPEN, PLAIN = "gain", "loss", "open", "best"
MEANINGS = {GAIN: "a gain (p < 0.05)", LOSS: "a loss (p < 0.05)", OPEN: "no evidence of either", PLAIN: "not compared"}
"""Of the colours, in the order of the legend."""


@dataclass(frozen=True)
class IntervalRow:
    """One interval; all values in percent or points."""

    name: str
    low: float
    middle: float
    high: float
    kind: str = OPEN


def classify_result(result: RunResult) -> str:
    """Whether the test set shows a gain, a loss or neither."""
    paired = result.comparison
    if paired.p_value >= LEVEL or paired.difference == 0 or result.kind == ORACLE:  # a bound gains nothing
        return OPEN
    return GAIN if paired.difference > 0 else LOSS


def variants_figure(result: RunResult) -> Figure:
    """Accuracies of all variants on the test set; the chosen route's stands out."""
    rows = []
    for index, variant in enumerate(result.variants):
        low, high = wilson_interval(variant.accuracy, variant.n)
        kind = OPEN if index else PLAIN
        rows.append(IntervalRow(variant.name, 100 * low, 100 * variant.accuracy, 100 * high, kind))
    title = f"Accuracy on {result.comparison.n} test examples, with 95 % intervals"
    return intervals_figure("variants", title, "%", rows, rows[-1].middle, meanings={})


def intervals_figure(  # noqa: PLR0913
    name: str,
    title: str,
    unit: str,
    rows: Sequence[IntervalRow],
    reference: float,
    meanings: Mapping[str, str] = MEANINGS,
) -> Figure:
    """All rows over one axis; ``reference`` is the value that they are compared with. ``meanings`` is the legend."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    kinds = [kind for kind in meanings if any(row.kind == kind for row in rows)]
    legend = tuple((join_markup(line_key(kind), _draw_dot(14, 6, kind)), meanings[kind]) for kind in kinds)
    shapes = _IntervalChart(rows, reference, height, unit).draw_shapes()
    return Figure(name, title, title, _WIDTH, height, shapes, legend)


class _IntervalChart:
    def __init__(self, rows: Sequence[IntervalRow], reference: float, height: float, unit: str) -> None:
        self.rows, self.reference, self.bottom, self.unit = rows, reference, height - _BOTTOM, unit
        lowest = min(reference, *(row.low for row in rows))
        highest = max(reference, *(row.high for row in rows))
        self.step = round_step(max(highest - lowest, 1.0), 8)
        self.first = int(lowest // self.step)
        self.last = -int(-highest // self.step)
        self.x = Scale(self.first * self.step, self.last * self.step, _LEFT, _WIDTH - _RIGHT)

    def draw_shapes(self) -> Markup:
        values = [number * self.step for number in range(self.first, self.last + 1)]
        return join_markup(
            *(vertical_gridline(use_minus_sign(f"{value:g}"), self.x(value), _TOP, self.bottom) for value in values),
            svg_text(self.unit, (_LEFT + _WIDTH - _RIGHT) / 2, self.bottom + 35),
            vertical_line(self.x(self.reference), _TOP, self.bottom, "standard-pass"),
            *(self._draw_row(index, row) for index, row in enumerate(self.rows)),
        )

    def _draw_row(self, index: int, row: IntervalRow) -> Markup:
        """The name above its interval, so that long ones fit."""
        top = _TOP + _ROW * index
        y = top + 31
        name = row.name if len(row.name) <= _MAX_NAME else f"{row.name[: _MAX_NAME - 1]}…"
        value = f"{row.middle:+.1f}" if self.reference == 0 else f"{row.middle:.1f}"
        return join_markup(
            horizontal_line(y, self.x(row.low), self.x(row.high), row.kind),
            _draw_dot(self.x(row.middle), y, row.kind),
            svg_element("text", name, x=_LEFT - 14, y=top + 16, class_="label"),
            svg_text(use_minus_sign(value), _WIDTH - 16, y + 4, "end", "strong"),
        )


def _draw_dot(x: float, y: float, kind: str) -> Markup:
    return svg_element("circle", cx=x, cy=y, r=4.5, class_=f"{kind}-point")
