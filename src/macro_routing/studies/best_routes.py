"""Best routes: per model and task the route with the best validation accuracy of all seeds (paper, best routes)."""

from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.formatting import format_points
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.result import ROUTE, SELECTED
from macro_routing.studies.tables import Column, Table, make_text_column, number_column, percentage_column
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode


def list_best_route_per_task(
    runs: Mapping[tuple[str, TaskWithAnswerMode], Sequence[MethodRun]], name: str
) -> list[dict[str, Any]]:
    """A row per model and task: of all seeds the route with the best validation accuracy, not the best test."""
    rows = []
    for (model, task), of_task in runs.items():
        candidates = [run for run in of_task if SELECTED[run.method] == name and run.result.kind == ROUTE]
        if not candidates:
            continue
        best = max(candidates, key=lambda run: (run.validation_accuracy, -run.seed))
        comparison, route = best.result.comparison, best.result.best_route
        rows.append(
            {
                "model": model,
                "task": str(task),
                "seed": best.seed,
                "standard": comparison.baseline,
                "accuracy": comparison.routed,
                "difference": comparison.difference,
                "base_layers": route.layers,
                "layers": route.length,
                "route": "standard pass" if route.is_standard else str(route),
            }
        )
    return rows


def make_best_routes_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Task, standard pass, route, difference, layers, route."""
    columns = [
        make_text_column("model", "model"),
        make_text_column("task", "task"),
        percentage_column("standard, %", "standard"),
        percentage_column("route, %", "accuracy"),
        number_column("difference, points", "difference", format_points),
        Column("layers", lambda row: f"{row['base_layers']} → {row['layers']}"),
        make_text_column("route", "route", is_code=True),
        number_column("seed", "seed"),
    ]
    notes = (
        "Of all seeds the route with the best validation accuracy; accuracies are on the test examples of its seed.",
    )
    return Table("Best routes", columns, rows, notes)
