"""Accuracy against budget: what each method would have found with fewer evaluations."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from macro_routing.report.chart_parts import horizontal_gridline, horizontal_line, line_key, svg_text
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import format_count
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.scale import Scale, round_step
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

Curve = Sequence[tuple[int, float]]
"""Evaluations and accuracy."""


def budget_figure(runs: Sequence[MethodRun]) -> Figure:
    """Gain on the test set against evaluations, one line per method."""
    curves = {
        method: mean_curve([_subtract_baseline(run) for run in runs if run.method == method])
        for method in dict.fromkeys(run.method for run in runs)
        if method != STANDARD  # it is the line across
    }
    label = "Test accuracy over the standard pass, points, against budget"
    legend = ((line_key("reference"), "standard pass"),)
    shapes = _BudgetChart(curves).draw_shapes()
    return Figure("budget", "Accuracy against budget", label, _WIDTH, _HEIGHT, shapes, legend, _CAPTION)


def _subtract_baseline(run: MethodRun) -> MethodRun:
    """The same run, its curve relative to the standard pass of its own seed."""
    baseline = run.result.comparison.baseline
    return replace(run, curve=tuple(replace(point, accuracy=point.accuracy - baseline) for point in run.curve))


def mean_curve(runs: Sequence[MethodRun]) -> list[tuple[int, float]]:
    """The mean over seeds wherever one of them changes; each keeps its last value until it has a new one."""
    runs = [replace(run, curve=run.curve[1:] if len(run.curve) == 2 else run.curve) for run in runs]  # one round
    budgets = sorted({point.asked for run in runs for point in run.curve})
    first = max((run.curve[0].asked for run in runs if run.curve), default=0)
    return [
        (budget, statistics.mean(_accuracy_at(run, budget) for run in runs if run.curve))
        for budget in budgets
        if budget >= first
    ]


def _accuracy_at(run: MethodRun, budget: int) -> float:
    return [point.accuracy for point in run.curve if point.asked <= budget][-1]


class _BudgetChart:
    def __init__(self, curves: Mapping[str, Curve]) -> None:
        self.curves = curves
        values = [0.0, *(value for curve in curves.values() for _, value in curve)]
        self.step = round_step(max(max(values) - min(values), 0.02), 6)
        self.first = math.ceil(min(values) / self.step) - 1
        self.last = math.floor(max(values) / self.step) + 1
        self.max_budget = max([1, *(budget for curve in curves.values() for budget, _ in curve)])
        self.x = Scale(0, self.max_budget, _LEFT, _WIDTH - _RIGHT)
        self.y = Scale(self.first * self.step, self.last * self.step, _HEIGHT - _BOTTOM, _TOP)

    def draw_shapes(self) -> Markup:
        lines = list(zip(_LINE_CLASSES, self.curves.items(), strict=False))
        ends = [
            (self.y(curve[-1][1]), METHODS[method].title, class_, self.x(curve[-1][0]))
            for class_, (method, curve) in lines
            if curve
        ]
        return join_markup(
            *self._draw_axes(),
            horizontal_line(self.y(0.0), self.x.start, self.x.end, "reference"),
            *(part for class_, (_, curve) in lines for part in self._draw_curve(curve, class_)),
            *_draw_names(ends),
        )

    def _draw_axes(self) -> list[Markup]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        levels = [number * self.step for number in range(self.first, self.last + 1)]
        step = round_step(self.max_budget, 5, min_step=1)
        budgets = [number * step for number in range(int(self.max_budget / step) + 1)]
        return [
            *(horizontal_gridline(_format_level(value), self.y(value), _LEFT, right) for value in levels),
            *(svg_text(format_count(budget), self.x(budget), bottom + 20) for budget in budgets),
            svg_text("evaluations", (_LEFT + right) / 2, bottom + 38),
        ]

    def _draw_curve(self, curve: Curve, class_: str) -> list[Markup]:
        """Steps, since nothing is known between two points."""
        points = [(self.x(budget), self.y(value)) for budget, value in curve]
        path = "".join(f"H{x:.1f}V{y:.1f}" if index else f"M{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))
        steps = [svg_element("path", d=path, class_=class_)] if len(points) > 1 else []
        return [*steps, *(svg_element("circle", cx=x, cy=y, r=3.2, class_=f"{class_} dot") for x, y in points)]


def _format_level(value: float) -> str:
    return f"{100 * value:+.3g}" if value else "0"


def _draw_names(ends: Sequence[tuple[float, str, str, float]]) -> list[Markup]:
    """Names at the right in the order of the curves' ends, without overlap; a thin line leads to each curve."""
    parts: list[Markup] = []
    ends = sorted(ends)
    left = _WIDTH - _RIGHT + 10
    for (y, name, class_, x), name_y in zip(ends, _spread_out([end[0] for end in ends]), strict=True):
        path = f"M{x + 5:.1f} {y:.1f}L{left:.1f} {name_y:.1f}"
        parts.append(svg_element("path", d=path, class_=f"{class_} lead"))
        parts.append(svg_element("text", name, x=left + 5, y=name_y + 4, class_="strong"))
    return parts


def _spread_out(heights: Sequence[float]) -> list[float]:
    """Heights moved apart: down first, then what went too far down comes up again."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + _LABEL_HEIGHT) if moved else height)
    lowest = _HEIGHT - 8
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], lowest)
        lowest = moved[index] - _LABEL_HEIGHT
    return moved
