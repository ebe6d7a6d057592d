"""Every task's route on every other task, with that task's prompts, scoring, data and baseline."""

from __future__ import annotations

from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.report.formatting import format_percentage, shorten_model_name
from macro_routing.report.heatmap import Heatmap
from macro_routing.studies import contamination
from macro_routing.studies.columns import comparisons_note, difference_columns, number_column, text_column
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import (
    comparisons_in,
    difference_row,
    gains_in,
    is_significant,
    losses_in,
    with_holm,
)
from macro_routing.studies.settings import TransferSettings
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Table
from macro_routing.studies.task_names import TaskName

STUDY = "transfer"


def run_transfer(context: StudyContext, settings: TransferSettings) -> StudyResult:
    """Search a route for each task, then let all of them answer all tasks' test examples."""
    tasks, seed = settings.task_names, settings.seed
    if len(tasks) < 2:
        raise SettingsError("transfer needs two tasks or more: routes are carried from one to another")
    context.need_routes()
    context.check_searches((f"{task}-{seed}", context.config(task, seed)) for task in tasks)
    routes = {
        str(task): context.search(f"{task}-{seed}", context.config(task, seed)).result.best_route for task in tasks
    }
    rows: list[dict[str, Any]] = []
    for target in tasks:
        scored = context.scored(f"on-{target}", target, seed, routes)["routes"]
        standard = scored["standard"]["correct"]
        rows += [
            {"source": str(source), "target": str(target), **_row(source, target, scored, standard)} for source in tasks
        ]
    rows = with_holm(rows)
    names, count = list(routes), comparisons_in(rows)
    places = {(names.index(row["source"]), names.index(row["target"])): row for row in rows}
    values = [
        [100 * places[source, target]["difference"] for target in range(len(names))] for source in range(len(names))
    ]
    labels = [f"{name} ({_is_standard(routes[name])})" for name in names]
    model = shorten_model_name(context.base.model)
    figure = Heatmap(
        labels,
        names,
        values,
        row_meaning="route searched on",
        column_meaning="tested on",
        unit="points",
        outlined={place for place, row in places.items() if is_significant(row)},
        outline_meaning="p < 0.05 after correction",
    ).draw_figure(STUDY, f"Routes on other tasks ({model}): points against the standard pass")
    away = [
        row for row in rows if row["source"] != row["target"] and row["p"] is not None and not row[contamination.KEY]
    ]
    gained, lost = len(gains_in(away)), len(losses_in(away))
    headline = (
        f"Of {len(away)} pairs of a route and another task {gained} gain and {lost} lose (p < 0.05, corrected);"
        " routes that are the standard pass, and tasks that share questions, are not counted."
        if away
        else "Every route that was found is the standard pass, or its tasks share questions: nothing is transferred."
    )
    notes = (
        (
            "Each route was searched and chosen on its own task's training and validation examples; test examples of"
            f" every task are that task's own (seed {seed})."
        ),
        contamination.NOTE,
        comparisons_note(count),
    )
    table = Table("Transfer of routes between tasks", _columns(), rows, notes)
    return StudyResult(
        STUDY, headline, {TABLE: table}, [figure], count, {"routes": {k: str(v) for k, v in routes.items()}}
    )


def _is_standard(route: Any) -> str:
    return "standard" if route.is_standard else f"{route.length} layers"


def _row(source: TaskName, target: TaskName, scored: dict[str, Any], standard: list[int]) -> dict[str, Any]:
    arm = scored[str(source)]
    row = {
        "route": arm["route"],
        "standard": sum(standard) / len(standard),
        "accuracy": sum(arm["correct"]) / len(standard),
        contamination.KEY: contamination.find_contaminating_tasks(target, [source]),
        **difference_row(standard, arm["correct"]),
    }
    # A route that is the standard pass cannot differ from it: nothing is compared.
    return {**row, "p": None} if arm["route"] == scored["standard"]["route"] else row


def _columns() -> list[Column]:
    return [
        text_column("route of", "source"),
        text_column("tested on", "target"),
        Column("standard, %", lambda row: format_percentage(row["standard"])),
        Column("route, %", lambda row: format_percentage(row["accuracy"])),
        *difference_columns(),
        number_column("n", "n"),
        contamination.contamination_column(),
        text_column("route", "route", is_code=True),
    ]
