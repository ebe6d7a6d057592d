"""One route for a model: one policy searched on a pooled task list, tested in and out of domain (paper)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from macro_routing.report.formatting import format_percentage, format_points
from macro_routing.routes.route import Route
from macro_routing.runs import folder as run_files
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.prepare import check_same_inputs, check_same_settings, prepare_run
from macro_routing.runs.result import read_result
from macro_routing.studies import contamination
from macro_routing.studies.columns import comparisons_note, difference_columns, number_column, text_column
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import (
    comparisons_in,
    difference_row,
    differences_figure,
    seeds_row,
    with_holm,
)
from macro_routing.studies.pooled_task import POOL, pooled, pooled_task
from macro_routing.studies.settings import OneRouteSettings
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Table
from macro_routing.studies.task_names import TaskName
from macro_routing.tasks.prompts import DIRECT

STUDY = "one-route"
INSIDE, OUTSIDE = "in domain", "out of domain"


def run_one_route(context: StudyContext, settings: OneRouteSettings) -> StudyResult:
    """Search one route on the pooled training examples, then test it on every task by itself."""
    inside, outside, seed = settings.task_names, settings.out_of_domain_names, settings.seed
    context.need_routes()
    contamination.check_pool(inside)
    route = _search(context, inside, seed)
    rows, rights = [], {}
    for domain, tasks in ((INSIDE, inside), (OUTSIDE, outside)):
        for task in tasks:
            scored = context.scored(f"on-{task}", task, seed, {"route": route})
            standard, routed = (scored["routes"][name]["correct"] for name in ("standard", "route"))
            rights[domain, str(task)] = [dict(zip(scored["examples"], row, strict=True)) for row in (standard, routed)]
            rows.append(
                {
                    "domain": domain,
                    "task": str(task),
                    "standard": statistics.mean(standard),
                    "accuracy": statistics.mean(routed),
                    contamination.KEY: contamination.find_contaminating_tasks(task, inside),
                    **difference_row(standard, routed),
                }
            )
    rows += [row for domain in (INSIDE, OUTSIDE) for row in mean_rows(domain, rows, rights)]
    if route.is_standard:  # it cannot differ from itself: nothing is compared
        rows = [{**row, "p": None} for row in rows]
    rows = with_holm(rows)
    count = comparisons_in(rows)
    means = ", ".join(
        f"{format_points(row['difference'])} points {row['domain']}" for row in rows if row["task"] == "mean"
    )
    headline = (
        "The search returned the standard pass: nothing is compared." if route.is_standard else f"{route}: {means}."
    )
    shown = [(f"{row['domain']}: {row['task']}", row) for row in rows]
    title = f"One route for {context.told(inside)}: difference to the standard pass, 95 % intervals"
    notes = (
        (
            f"The route `{route}` was searched and chosen on the pooled training and validation examples of"
            f" {', '.join(map(str, inside))}, seed {seed}. Means over tasks are unweighted."
        ),
        contamination.NOTE,
        comparisons_note(count),
    )
    table = Table("One model, one route", _columns(), rows, notes)
    figure = differences_figure(STUDY, title, shown, route)
    return StudyResult(STUDY, headline, {TABLE: table}, [figure], count, {"route": str(route)})


def _search(context: StudyContext, tasks: Sequence[TaskName], seed: int) -> Route:
    """The pool's search in an ordinary run's folder."""
    place = context.folder.run_place(f"{POOL}-{seed}")
    # The pool's own way to answer only counts tokens; every example has its task's.
    config = context.config(TaskName(POOL, DIRECT), seed)
    if (place / run_files.RUN).is_file():
        check_same_settings(RunFolder.open(place).read_json(run_files.RUN), config, place)
        if RunFolder.open(place).is_finished:
            return read_result(RunFolder.open(place)).best_route
    context.check_time()
    members = {str(task): context.prepared(task, seed) for task in tasks}
    known: dict[str, Any] = {"frozen": context.frozen, "listener": context.listener, "store": context.store}
    run = pooled(prepare_run(config, task=pooled_task(members), **known), members)
    is_begun = (place / run_files.RUN).is_file()
    folder = RunFolder.open(place) if is_begun else RunFolder.create(place)
    with folder.lock():
        if is_begun:
            check_same_inputs(folder.read_json(run_files.RUN), run.make_header(), place)
        else:
            folder.write_json(run_files.RUN, run.make_header())
        return run.run(folder).best_route


def mean_rows(domain: str, rows: Sequence[dict[str, Any]], rights: dict[tuple[str, str], Any]) -> list[dict[str, Any]]:
    """A domain's mean over the tasks that share no questions with the pool; none where there are none."""
    mine = [row for row in rows if row["domain"] == domain and not row[contamination.KEY]]
    if not mine:
        return []
    pairs = [[tuple(rights[domain, row["task"]])] for row in mine]
    mean = {
        "domain": domain,
        "task": "mean",
        "standard": statistics.mean(row["standard"] for row in mine),
        "accuracy": statistics.mean(row["accuracy"] for row in mine),
        **seeds_row(pairs),
        **({"p": None} if len(mine) == 1 else {}),  # the mean of one task was compared already
    }
    return [mean]


def _columns() -> list[Column]:
    return [
        text_column("", "domain"),
        text_column("task", "task"),
        Column("standard, %", lambda row: format_percentage(row["standard"])),
        Column("one route, %", lambda row: format_percentage(row["accuracy"])),
        *difference_columns(),
        number_column("n", "n"),
        contamination.contamination_column(),
    ]
