"""The best route of each model and task, as the paper lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macro_routing.report.formatting import format_percentage, format_points
from macro_routing.runs import folder as files
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.result import ROUTE, SELECTED
from macro_routing.studies.columns import text_column
from macro_routing.studies.tables import Column, Table


def best_route_rows(arms: Mapping[Any, Sequence[MethodRun]], name: str) -> list[dict[str, Any]]:
    """A line per model and task: of all seeds the route that validation liked best, never the one that tests best."""
    rows = []
    for (model, task), found in arms.items():
        mine = [arm for arm in found if SELECTED[arm.method] == name and arm.result.kind == ROUTE]
        if not mine:
            continue
        best = max(mine, key=lambda arm: (_validation(arm), -arm.seed))
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


def _validation(arm: MethodRun) -> float:
    run = RunFolder.open(Path(arm.result.folder))
    with run.explain_damage(files.CANDIDATES):
        choice = run.read_json(files.CANDIDATES)
        chosen = [one for one in choice["candidates"] if one["route"] == choice["chosen"]]
        return float(chosen[0]["correct"] / chosen[0]["n"]) if chosen else 0.0


def best_routes_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Task, standard pass, route, difference, layers, route."""
    columns = [
        text_column("model", "model"),
        text_column("task", "task"),
        Column("standard, %", lambda row: format_percentage(row["standard"])),
        Column("route, %", lambda row: format_percentage(row["accuracy"])),
        Column("difference, points", lambda row: format_points(row["difference"])),
        Column("layers", lambda row: f"{row['base_layers']} → {row['layers']}"),
        text_column("route", "route", is_code=True),
        Column("seed", lambda row: str(row["seed"])),
    ]
    notes = ("Of all seeds the route with the best validation accuracy; accuracies are of its own test set.",)
    return Table("Best routes", columns, rows, notes)
