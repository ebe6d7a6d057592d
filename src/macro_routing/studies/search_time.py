"""How long each method searches and selects, beside what that is worth (the paper's headline)."""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.figure import Figure
from macro_routing.report.formatting import format_percent_number, format_points
from macro_routing.report.interval_chart import OPEN, IntervalRow, draw_intervals
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.methods import METHODS
from macro_routing.runs.methods import STANDARD as STANDARD_METHOD
from macro_routing.studies.tables import Column, Table, make_text_column, number_column, percentage_column

_MIN_HOURS_FOR_MINUTES = 0.1
"""Hours under which seconds are drawn: tenths of minutes would all look alike."""


def summarize_search_times(runs: Mapping[Any, Sequence[MethodRun]]) -> list[dict[str, Any]]:
    """A row per model and method: mean seconds per task and seed beside the accuracy."""
    grouped: dict[tuple[str, str], list[MethodRun]] = defaultdict(list)
    for (model, _), of_task in runs.items():
        for run in of_task:
            grouped[model, run.method].append(run)
    return [
        _summarize_method_times(model, method, of_method)
        for (model, method), of_method in grouped.items()
        if method != STANDARD_METHOD  # it searches nothing
    ]


def _summarize_method_times(model: str, method: str, runs: Sequence[MethodRun]) -> dict[str, Any]:
    search = statistics.mean(run.seconds for run in runs)
    # Runs that were kept by earlier versions do not know the time of their selection.
    times = [run.selection_seconds for run in runs]
    selection = None if any(map(math.isnan, times)) else statistics.mean(times)
    return {
        "model": model,
        "method": METHODS[method].title,
        "runs": len(runs),
        "search_seconds": search,
        "selection_seconds": selection,
        "hours": None if selection is None else (search + selection) / 3600,
        "accuracy": statistics.mean(run.result.variants[0].accuracy for run in runs),
        "difference": statistics.mean(run.result.comparison.difference for run in runs),
        "asked": statistics.mean(run.asked for run in runs),
    }


def make_search_time_table(rows: Sequence[Mapping[str, Any]], sizes: str) -> Table:
    """Hours beside accuracy; ``sizes`` says over which seeds and examples."""
    columns = [
        make_text_column("model", "model"),
        make_text_column("method", "method"),
        Column("search, s", lambda row: f"{row['search_seconds']:.0f}"),
        Column("selection or training, s", lambda row: _format_if_known(row["selection_seconds"], ".0f")),
        Column("hours", lambda row: _format_if_known(row["hours"], ".3g")),
        Column("evaluations", lambda row: f"{row['asked']:,.0f}"),
        percentage_column("correct, %", "accuracy"),
        number_column("difference, points", "difference", format_points),
    ]
    notes = (
        sizes,
        (
            "Means over tasks and seeds. Every method and seed keeps its scores apart, so none is faster for what"
            " another has computed, unless the study was given a store."
        ),
    )
    return Table("Search time beside accuracy", columns, rows, notes)


def _format_if_known(value: float | None, template: str) -> str:
    return "not recorded" if value is None else f"{value:{template}}"


def draw_search_times(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Minutes of every method as one row, its accuracy in its name; rows without known times are left out."""
    rows = [row for row in rows if row["hours"] is not None]
    several = len({row["model"] for row in rows}) > 1

    def format_row_label(row: Mapping[str, Any]) -> str:
        name = f"{row['model']} · {row['method']}" if several else str(row["method"])
        return f"{name}: {format_percent_number(row['accuracy'])} % correct ({format_points(row['difference'])} points)"

    most = max((row["hours"] for row in rows), default=0.0)
    unit, scale = ("minutes", 60.0) if most > _MIN_HOURS_FOR_MINUTES else ("seconds", 3600.0)
    shown = [IntervalRow(format_row_label(row), 0.0, scale * row["hours"], scale * row["hours"], OPEN) for row in rows]
    models = ", ".join(dict.fromkeys(str(row["model"]) for row in rows))
    title = f"Time of search and selection per task and seed{'' if several else f' ({models})'}"
    return draw_intervals("search_time", title, unit, shown, 1e-9, meanings={})
