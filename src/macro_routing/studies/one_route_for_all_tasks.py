"""One route for a model: one policy searched on a pooled task list, tested in and out of domain (paper)."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from macro_routing.report.formatting import format_points
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.runs import folder as run_files
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.prepare import check_run_inputs_unchanged, check_same_settings, prepare_run
from macro_routing.runs.prepared_run import PreparedRun
from macro_routing.runs.result import read_result
from macro_routing.studies import question_overlap
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import (
    SeedPairs,
    add_holm_correction,
    compute_paired_score_difference,
    draw_differences,
    make_corrected_comparison_table,
    make_mean_difference_cells,
)
from macro_routing.studies.pooled_task import POOL, count_shared_examples, make_pooled_task, with_multitask_evaluator
from macro_routing.studies.settings import OneRouteForAllTasksSettings
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import Row, difference_columns, make_text_column, number_column, percentage_column
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks.prompts import DIRECT

STUDY = "one-route"
INSIDE, OUTSIDE = "in domain", "out of domain"
_COLUMNS = [
    make_text_column("", "domain"),
    make_text_column("task", "task"),
    percentage_column("standard, %", "standard"),
    percentage_column("one route, %", "accuracy"),
    *difference_columns(),
    number_column("n", "n"),
    question_overlap.COLUMN,
]


def run_one_route_for_all_tasks_study(context: StudyContext, settings: OneRouteForAllTasksSettings) -> StudyResult:
    """Search one route on the pooled training examples, then test it on every task by itself."""
    inside, seed = settings.task_names, settings.seed
    context.require_route_method()
    question_overlap.check_pooled_tasks_overlap(inside)
    tested = collect_test_questions(context, settings)
    members = {str(task): context.prepare_task(task, seed) for task in inside}
    left_out = count_shared_examples(members, tested)
    left_out_note = describe_left_out_examples(members, left_out)
    if left_out:
        context.listener.on_message(f"warning: {left_out_note}")
    route = _search_pooled_task(context, members, tested, seed)
    rows: list[dict[str, Any]] = []
    correct: dict[tuple[str, str], SeedPairs] = {}
    for domain, tasks in ((INSIDE, inside), (OUTSIDE, settings.out_of_domain_names)):
        for task in tasks:
            scored = context.score_routes(f"on-{task}", task, seed, {"route": route})
            standard, routed = scored["routes"]["standard"], scored["routes"]["route"]
            standard_correct = dict(zip(scored["examples"], standard["correct"], strict=True))
            correct[domain, str(task)] = [
                (standard_correct, dict(zip(scored["examples"], routed["correct"], strict=True)))
            ]
            rows.append(
                {
                    "domain": domain,
                    "task": str(task),
                    "standard": statistics.mean(standard["correct"]),
                    "accuracy": statistics.mean(routed["correct"]),
                    question_overlap.KEY: question_overlap.find_rewritten_search_tasks(task, inside),
                    **compute_paired_score_difference(standard, routed),
                }
            )
    rows += [row for domain in (INSIDE, OUTSIDE) for row in make_domain_mean_rows(domain, rows, correct)]
    if route.is_standard:  # it cannot differ from itself: nothing is compared
        rows = [{**row, "p": None} for row in rows]
    rows = add_holm_correction(rows)
    note = (
        f"The route `{route}` was searched and chosen on the pooled training and validation examples of"
        f" {', '.join(map(str, inside))}, seed {seed}. Means over tasks are unweighted."
    )
    notes = [note, *([left_out_note] if left_out else []), question_overlap.REWRITTEN_NOTE]
    table = make_corrected_comparison_table("One model, one route", _COLUMNS, rows, *notes)
    title = f"One route for {context.describe_model_and_tasks(inside)}: difference to the standard pass, 95 % intervals"
    figure = draw_differences(STUDY, title, [(f"{row['domain']}: {row['task']}", row) for row in rows], route)
    return StudyResult(
        STUDY,
        _describe_mean_gains_by_domain(route, rows),
        table,
        [figure],
        {"route": str(route), "left_out_of_pool": left_out},
    )


def collect_test_questions(context: StudyContext, settings: OneRouteForAllTasksSettings) -> set[str]:
    """The normalized test questions of every task that the study tests on, in domain and out of it."""
    runs = [context.prepare_task(task, settings.seed) for task in settings.study_task_names]
    return {example.normalized_question for run in runs for example in run.splits.test}


def describe_left_out_examples(members: Mapping[str, PreparedRun], left_out: Mapping[str, Mapping[str, int]]) -> str:
    """How many of the pool's examples are another task's test questions, by task."""
    size = sum(len(run.splits.train) + len(run.splits.validation) for run in members.values())
    counts = {task: sum(of_task.values()) for task, of_task in left_out.items()}
    by_task = ", ".join(f"{task} {count}" for task, count in counts.items())
    return (
        f"{sum(counts.values())} of the {size} training and validation examples of the tasks are test questions of"
        f" another task and were left out of the pool ({by_task})."
    )


def _describe_mean_gains_by_domain(route: RouteOrMixture, rows: Sequence[Row]) -> str:
    if route.is_standard:
        return "The search returned the standard pass: nothing is compared."
    means = [f"{format_points(row['difference'])} points {row['domain']}" for row in rows if row["task"] == "mean"]
    return f"{route}: {', '.join(means)}."


def _search_pooled_task(
    context: StudyContext, members: Mapping[str, PreparedRun], tested: Collection[str], seed: int
) -> RouteOrMixture:
    """The pool's search in an ordinary run's folder."""
    folder_path = context.folder.run_folder(f"{POOL}-{seed}")
    # The pool's own mode only counts tokens; every example is answered in its task's mode.
    config = context.make_run_config(TaskWithAnswerMode(POOL, DIRECT), seed)
    is_begun = (folder_path / run_files.RUN).is_file()
    if is_begun:
        check_same_settings(RunFolder.open(folder_path).read_json(run_files.RUN), config, folder_path)
    known: dict[str, Any] = {"frozen": context.frozen_model, "listener": context.listener, "store": context.store}
    run = with_multitask_evaluator(prepare_run(config, task=make_pooled_task(members, tested), **known), members)
    if is_begun:
        header = RunFolder.open(folder_path).read_json(run_files.RUN)
        check_run_inputs_unchanged(header, run.make_run_json_contents(), folder_path)
        if RunFolder.open(folder_path).is_finished:
            return read_result(RunFolder.open(folder_path)).best_route
    context.raise_if_time_limit_passed()
    folder = RunFolder.open(folder_path) if is_begun else RunFolder.create(folder_path)
    with folder.lock():
        if not is_begun:
            folder.write_json(run_files.RUN, run.make_run_json_contents())
        return run.run(folder).best_route


def make_domain_mean_rows(
    domain: str, rows: Sequence[Row], correct: Mapping[tuple[str, str], SeedPairs]
) -> list[dict[str, Any]]:
    """A row with the mean over a domain's tasks that have no rewritten questions of the pool; none without such."""
    clean_rows = [row for row in rows if row["domain"] == domain and not row[question_overlap.KEY]]
    if not clean_rows:
        return []
    mean = {
        "domain": domain,
        "task": "mean",
        "standard": statistics.mean(row["standard"] for row in clean_rows),
        "accuracy": statistics.mean(row["accuracy"] for row in clean_rows),
        **make_mean_difference_cells([correct[domain, row["task"]] for row in clean_rows]),
    }
    return [{**mean, "p": None}] if len(clean_rows) == 1 else [mean]  # the mean of one task was compared already
