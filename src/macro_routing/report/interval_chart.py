"""Intervals one under the other, with a line to compare them with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale, list_nice_axis_ticks
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


def make_difference_interval_row(name: str, difference: Any, kind: str) -> IntervalRow:
    """A difference of two accuracies, with ``low`` and ``high``, in points."""
    return IntervalRow(name, 100 * difference.low, 100 * difference.difference, 100 * difference.high, kind)


def classify_gain_or_loss(result: RunResult) -> str:
    """Whether the test set shows a gain, a loss or neither."""
    paired = result.comparison
    if paired.p_value >= LEVEL or paired.difference == 0 or result.kind == ORACLE:  # a bound gains nothing
        return OPEN
    return GAIN if paired.difference > 0 else LOSS


def draw_test_accuracy_chart(result: RunResult) -> Figure:
    """Accuracies of all variants on the test set; the chosen route's stands out."""
    bounds = [wilson_interval(variant.accuracy, variant.n) for variant in result.variants]
    rows = [
        IntervalRow(variant.name, 100 * low, 100 * variant.accuracy, 100 * high, OPEN if index else PLAIN)
        for index, (variant, (low, high)) in enumerate(zip(result.variants, bounds, strict=True))
    ]
    title = f"Accuracy on {result.comparison.n} test examples, with 95 % intervals"
    return draw_intervals("variants", title, "%", rows, rows[-1].middle, meanings={})


def draw_intervals(  # noqa: PLR0913
    name: str,
    title: str,
    unit: str,
    rows: Sequence[IntervalRow],
    reference: float,
    meanings: Mapping[str, str] = MEANINGS,
    width: float = _WIDTH,
) -> Figure:
    """All rows over one axis; ``reference`` is the value that they are compared with. ``meanings`` is the legend."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    ticks = list_nice_axis_ticks(
        [reference, *(value for row in rows for value in (row.low, row.high))], 8, min_span=1.0
    )
    shapes = render_template(
        "interval_chart.svg",
        x=Scale(ticks[0], ticks[-1], _LEFT, width - _RIGHT),
        ticks=[(tick, f"{tick:g}") for tick in ticks],
        rows=rows,
        reference=reference,
        unit=unit,
        value_format="%+.1f" if reference == 0 else "%.1f",
        max_name=_MAX_NAME,
        top=_TOP,
        bottom=height - _BOTTOM,
        row_height=_ROW,
        right=width - 16,
    )
    kinds = [kind for kind in meanings if any(row.kind == kind for row in rows)]
    legend = [LegendKey("line with dot", kind, meanings[kind]) for kind in kinds]
    return Figure(name, title, title, width, height, shapes, legend)
