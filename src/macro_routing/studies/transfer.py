"""Every task's route on every other task, with that task's prompts, scoring, data and baseline."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.report.formatting import shorten_model_name
from macro_routing.report.heatmap import Heatmap
from macro_routing.routes.mixture import RouteOrMixture, to_mixture
from macro_routing.studies import question_overlap
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    compute_paired_score_difference,
    is_significant,
    make_corrected_comparison_table,
    select_significant_gains,
    select_significantly_worse_rows,
)
from macro_routing.studies.settings import TransferSettings
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import Row, difference_columns, make_text_column, number_column, percentage_column
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks.prompts import LIKELIHOOD

STUDY = "transfer"
_COLUMNS = [
    make_text_column("route of", "source"),
    make_text_column("tested on", "target"),
    percentage_column("standard, %", "standard"),
    percentage_column("route, %", "accuracy"),
    *difference_columns(),
    number_column("n", "n"),
    question_overlap.COLUMN,
    make_text_column("route", "route", is_code=True),
]


def run_transfer(context: StudyContext, settings: TransferSettings) -> StudyResult:
    """Search a route for each task, then let all of them answer all tasks' test examples."""
    tasks, seed = settings.task_names, settings.seed
    if len(tasks) < 2:
        raise SettingsError("transfer needs two tasks or more: routes are carried from one to another")
    context.require_route_method()
    configs = {f"{task}-{seed}": context.make_run_config(task, seed) for task in tasks}
    context.check_planned_searches_can_run(configs.items())
    runs = [context.load_or_search(name, config) for name, config in configs.items()]
    routes = {str(task): run.result.best_route for task, run in zip(tasks, runs, strict=True)}
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for target in tasks:
        usable = _select_usable_routes(context, target, seed, routes)
        left_out += [f"{source} on {target}" for source in routes if source not in usable]
        scored = context.score_routes(f"on-{target}", target, seed, usable)["routes"]
        rows += [_compare_transfer(source, target, scored) for source in tasks if str(source) in usable]
    rows = add_holm_correction(rows)
    note = (
        "Each route was searched and chosen on its own task's training and validation examples; test examples of every"
        f" task are that task's own (seed {seed})."
    )
    if left_out:
        note += f" Not run, since these mixtures only compare choices and text is written there: {', '.join(left_out)}."
    table = make_corrected_comparison_table(
        "Transfer of routes between tasks", _COLUMNS, rows, note, question_overlap.NOTE
    )
    title = f"Routes on other tasks ({shorten_model_name(context.base.model)}): points against the standard pass"
    figure = _make_transfer_heatmap(rows, routes).draw_figure(STUDY, title)
    details = {"routes": {name: str(route) for name, route in routes.items()}}
    return StudyResult(STUDY, _summarize_transfer(rows), table, [figure], details)


def _select_usable_routes(
    context: StudyContext, target: TaskWithAnswerMode, seed: int, routes: Mapping[str, RouteOrMixture]
) -> dict[str, RouteOrMixture]:
    """The routes without mixtures that can only compare choices, where text is written."""
    writes_text = context.prepare_task(target, seed).evaluator.decoding.mode != LIKELIHOOD
    return {
        source: route
        for source, route in routes.items()
        if not (writes_text and to_mixture(route).compares_choices_only)
    }


def _compare_transfer(
    source: TaskWithAnswerMode, target: TaskWithAnswerMode, scored: Mapping[str, Any]
) -> dict[str, Any]:
    standard, routed = scored["standard"], scored[str(source)]
    return {
        "source": str(source),
        "target": str(target),
        "route": routed["route"],
        "standard": statistics.mean(standard["correct"]),
        "accuracy": statistics.mean(routed["correct"]),
        question_overlap.KEY: question_overlap.find_contaminating_search_tasks(target, [source]),
        **compute_paired_score_difference(standard, routed),
    }


def _make_transfer_heatmap(rows: Sequence[Row], routes: Mapping[str, RouteOrMixture]) -> Heatmap:
    names = list(routes)
    cells = {(names.index(row["source"]), names.index(row["target"])): row for row in rows}
    indices = range(len(names))
    lengths = {name: "standard" if route.is_standard else f"{route.length} layers" for name, route in routes.items()}
    return Heatmap(
        [f"{name} ({length})" for name, length in lengths.items()],
        names,
        [
            [100 * cells[cell]["difference"] if (cell := (source, target)) in cells else None for target in indices]
            for source in indices
        ],
        row_meaning="route searched on",
        column_meaning="tested on",
        unit="points",
        outlined={index for index, row in cells.items() if is_significant(row)},
        outline_meaning="p < 0.05 after correction",
    )


def _summarize_transfer(rows: Sequence[Row]) -> str:
    other = [row for row in rows if row["source"] != row["target"]]
    compared = [row for row in other if row["p"] is not None and not row[question_overlap.KEY]]
    if not compared:
        return "Every route that was found is the standard pass, or its tasks share questions: nothing is transferred."
    gains, losses = select_significant_gains(compared), select_significantly_worse_rows(compared)
    return (
        f"Of {len(compared)} pairs of a route and another task {len(gains)} gain and {len(losses)} lose (p < 0.05,"
        " corrected); routes that are the standard pass, and tasks that share questions, are not counted."
    )
