"""Intervals one under the other, with a line to compare them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from macro_routing.report.figure import Figure, Key
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale, round_step
from macro_routing.runs.result import LEVEL, ORACLE, RunResult
from macro_routing.runs.round_report import wilson_interval

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _ROW = 860.0, 26.0, 90.0, 4.0, 42.0, 44.0
_LONGEST_NAME = 90
GAIN, LOSS, OPEN, PLAIN = "gain", "loss", "open", "best"
_MEANINGS = {GAIN: "a gain (p < 0.05)", LOSS: "a loss (p < 0.05)", OPEN: "no evidence of either", PLAIN: "not compared"}


@dataclass(frozen=True)
class IntervalRow:
    """One interval; all in percent or points."""

    name: str
    low: float
    middle: float
    high: float
    kind: str = OPEN


def verdict_kind(result: RunResult) -> str:
    """What the test set shows of a route."""
    one = result.comparison
    if one.p_value >= LEVEL or one.difference == 0 or result.kind == ORACLE:  # a bound gains nothing
        return OPEN
    return GAIN if one.difference > 0 else LOSS


def variants_figure(result: RunResult) -> Figure:
    """Accuracies of all variants on the test set; the chosen route's stands out."""
    rows = []
    for place, one in enumerate(result.variants):
        low, high = wilson_interval(one.accuracy, one.n)
        rows.append(IntervalRow(one.name, 100 * low, 100 * one.accuracy, 100 * high, OPEN if place else PLAIN))
    title = f"Accuracy on {result.comparison.n} test examples, with 95 % intervals"
    figure = intervals_figure("variants", title, "%", rows, rows[-1].middle)
    return replace(figure, legend=())  # its colours judge nothing


def intervals_figure(name: str, title: str, unit: str, rows: Sequence[IntervalRow], reference: float) -> Figure:
    """All rows over one axis; ``reference`` is the value that they are compared with."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    drawing = _Intervals(rows, reference, height, unit)
    kinds = [kind for kind in _MEANINGS if any(row.kind == kind for row in rows)]
    legend: list[Key] = [
        (joined(element("path", d="M1 6L27 6", class_=kind), _dot(14, 6, kind)), _MEANINGS[kind]) for kind in kinds
    ]
    return Figure(name, title, title, _WIDTH, height, drawing.shapes(), tuple(legend))


class _Intervals:
    def __init__(self, rows: Sequence[IntervalRow], reference: float, height: float, unit: str) -> None:
        self.rows, self.reference, self.bottom, self.unit = rows, reference, height - _BOTTOM, unit
        lowest = min(reference, *(row.low for row in rows))
        highest = max(reference, *(row.high for row in rows))
        self.step = round_step(max(highest - lowest, 1.0), 8)
        self.first = int(lowest // self.step)
        self.last = -int(-highest // self.step)
        self.x = Scale(self.first * self.step, self.last * self.step, _LEFT, _WIDTH - _RIGHT)

    def shapes(self) -> Markup:
        grid = []
        for number in range(self.first, self.last + 1):
            x = self.x(number * self.step)
            grid.append(element("line", x1=x, x2=x, y1=_TOP, y2=self.bottom, class_="grid"))
            mark = f"{number * self.step:g}".replace("-", "−")
            grid.append(element("text", mark, x=x, y=self.bottom + 17, text_anchor="middle"))
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        grid.append(element("text", self.unit, x=middle, y=self.bottom + 35, text_anchor="middle"))
        x = self.x(self.reference)
        line = element("line", x1=x, x2=x, y1=_TOP, y2=self.bottom, class_="standard-pass")
        return joined(*grid, line, *[self._row(place, row) for place, row in enumerate(self.rows)])

    def _row(self, place: int, row: IntervalRow) -> Markup:
        """The name above its interval, so that long ones have room."""
        top = _TOP + _ROW * place
        y = top + 31
        name = row.name if len(row.name) <= _LONGEST_NAME else f"{row.name[: _LONGEST_NAME - 1]}…"
        value = f"{row.middle:+.1f}" if self.reference == 0 else f"{row.middle:.1f}"
        return joined(
            element("line", x1=self.x(row.low), x2=self.x(row.high), y1=y, y2=y, class_=row.kind),
            _dot(self.x(row.middle), y, row.kind),
            element("text", name, x=_LEFT - 14, y=top + 16, class_="label"),
            element("text", value.replace("-", "−"), x=_WIDTH - 16, y=y + 4, text_anchor="end", class_="strong"),
        )


def _dot(x: float, y: float, kind: str) -> Markup:
    return element("circle", cx=x, cy=y, r=4.5, class_=f"{kind}-point")
