"""The best route of each model and task, as the paper lists them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.report.formatting import format_points
from macro_routing.runs import folder as files
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.result import ROUTE, SELECTED
from macro_routing.studies.tables import Column, Table, number_column, percentage_column, text_column


def list_best_routes(runs: Mapping[Any, Sequence[MethodRun]], name: str) -> list[dict[str, Any]]:
    """A row per model and task: of all seeds the route with the best validation accuracy, not the best test."""
    rows = []
    for (model, task), runs_of_task in runs.items():
        candidates = [run for run in runs_of_task if SELECTED[run.method] == name and run.result.kind == ROUTE]
        if not candidates:
            continue
        best = max(candidates, key=lambda run: (_read_validation_accuracy(run), -run.seed))
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


def _read_validation_accuracy(method_run: MethodRun) -> float:
    run = RunFolder.open(Path(method_run.result.folder))
    with run.explain_damage(files.CANDIDATES):
        choice = run.read_json(files.CANDIDATES)
        chosen = [one for one in choice["candidates"] if one["route"] == choice["chosen"]]
        return float(chosen[0]["correct"] / chosen[0]["n"]) if chosen else 0.0


def make_best_routes_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Task, standard pass, route, difference, layers, route."""
    columns = [
        text_column("model", "model"),
        text_column("task", "task"),
        percentage_column("standard, %", "standard"),
        percentage_column("route, %", "accuracy"),
        number_column("difference, points", "difference", format_points),
        Column("layers", lambda row: f"{row['base_layers']} → {row['layers']}"),
        text_column("route", "route", is_code=True),
        number_column("seed", "seed"),
    ]
    notes = ("Of all seeds the route with the best validation accuracy; accuracies are of its own test set.",)
    return Table("Best routes", columns, rows, notes)
