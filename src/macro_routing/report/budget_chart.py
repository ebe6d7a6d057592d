"""Accuracy against budget: what each method would have found with fewer evaluations."""

import statistics
from collections.abc import Sequence
from dataclasses import replace

from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_count
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale, list_nice_axis_ticks, list_ticks_within
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import STANDARD

_CAPTION = (
    "What validation would have chosen, had the search ended there: its test accuracy minus the standard pass's on the "
    "same examples, so that methods with other seeds can stand beside each other; the mean over seeds. It is drawn, "
    "never chosen from. A method that scores all its routes in one round has one point."
)
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 360.0, 62.0, 190.0, 14.0, 46.0
_LABEL_HEIGHT = 15.0
"""Minimum distance between two names beside the curves."""
_LINE_CLASSES = tuple(f"method-{number}" for number in range(10))


def draw_budget_chart(runs: Sequence[MethodRun]) -> Figure:
    """Gain on the test set against evaluations, one line per method."""
    # The standard pass is the line across.
    methods = [method for method in dict.fromkeys(run.method for run in runs) if method != STANDARD]
    curves = [
        compute_mean_curve([_subtract_baseline_from_curve(run) for run in runs if run.method == method])
        for method in methods
    ]
    ticks = list_nice_axis_ticks([0.0, *(gain for curve in curves for _, gain in curve)], 6, min_span=0.02, beyond=True)
    max_budget = max([1, *(budget for curve in curves for budget, _ in curve)])
    x = Scale(0, max_budget, _LEFT, _WIDTH - _RIGHT)
    y = Scale(ticks[0], ticks[-1], _HEIGHT - _BOTTOM, _TOP)
    lines = list(zip(_LINE_CLASSES, methods, curves, strict=False))
    ends = sorted(
        (y(curve[-1][1]), METHODS[method].title, class_, x(curve[-1][0])) for class_, method, curve in lines if curve
    )
    shapes = render_template(
        "budget_chart.svg",
        x=x,
        y=y,
        gain_ticks=[(tick, f"{100 * tick:+.3g}" if tick else "0") for tick in ticks],
        budget_ticks=[(tick, format_count(tick)) for tick in list_ticks_within(0, max_budget, 5, min_step=1)],
        lines=lines,
        ends=list(zip(ends, _spread_labels([end[0] for end in ends]), strict=True)),
    )
    label = "Test accuracy over the standard pass, points, against budget"
    legend = [LegendKey("line", "reference", "standard pass")]
    return Figure("budget", "Accuracy against budget", label, _WIDTH, _HEIGHT, shapes, legend, _CAPTION)


def _subtract_baseline_from_curve(run: MethodRun) -> MethodRun:
    """The same run, its curve relative to the standard pass of its own seed."""
    baseline = run.result.comparison.baseline
    return replace(run, curve=tuple(replace(point, accuracy=point.accuracy - baseline) for point in run.curve))


def compute_mean_curve(runs: Sequence[MethodRun]) -> list[tuple[int, float]]:
    """The mean over seeds wherever one of them changes; each keeps its last value until it has a new one."""
    runs = [replace(run, curve=run.curve[1:] if len(run.curve) == 2 else run.curve) for run in runs]  # one round
    budgets = sorted({point.asked for run in runs for point in run.curve})
    first = max((run.curve[0].asked for run in runs if run.curve), default=0)
    return [
        (budget, statistics.mean(_accuracy_at_budget(run, budget) for run in runs if run.curve))
        for budget in budgets
        if budget >= first
    ]


def _accuracy_at_budget(run: MethodRun, budget: int) -> float:
    return [point.accuracy for point in run.curve if point.asked <= budget][-1]


def _spread_labels(heights: Sequence[float]) -> list[float]:
    """Heights moved apart: down first, then what went too far down comes up again."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + _LABEL_HEIGHT) if moved else height)
    lowest = _HEIGHT - 8
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], lowest)
        lowest = moved[index] - _LABEL_HEIGHT
    return moved
