"""What a route does to everything it was not searched for: other tasks, and plain text."""

import hashlib
import itertools
import json
import statistics
from collections.abc import Sequence
from typing import Any

from macro_routing.engine.batching import Tokens
from macro_routing.report.formatting import format_percent_number, shorten_model_name
from macro_routing.routes.route import Route
from macro_routing.studies import question_overlap
from macro_routing.studies.context import RouteWithSearchedTask, StudyContext
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    compute_paired_score_difference,
    draw_differences,
    make_corrected_comparison_table,
    select_significantly_worse_rows,
)
from macro_routing.studies.perplexity import (
    compare_perplexities,
    compute_negative_log_likelihoods,
    describe_perplexity,
    note_omitted_perplexity_rows,
    read_plain_text,
    split_windows,
)
from macro_routing.studies.settings import SideEffectsSettings
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import (
    Column,
    Row,
    Table,
    difference_columns,
    make_text_column,
    number_column,
    percentage_column,
)
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.tasks.task import Example

STUDY = "side-effects"
QUESTIONS = "the tasks' own questions"
_PERPLEXITY_NOTE = (
    "Perplexity over rows of up to 256 tokens; the interval resamples rows. Questions of the tasks are short and of one"
    " kind; name a text of your own with --text."
)


def run_side_effects(
    context: StudyContext, subject: RouteWithSearchedTask, settings: SideEffectsSettings
) -> StudyResult:
    """Score the route on all tasks, and on plain text."""
    route, tasks = subject.get_single_route("the study of side effects"), settings.task_names
    rows = add_holm_correction([_compare_route_on_task(context, task, subject) for task in tasks])
    if settings.text is not None:
        texts, source = [read_plain_text(settings.text)], settings.text.name
    else:
        texts = interleave_questions([context.prepare_task(task, subject.seed).splits.test for task in tasks])
        source = QUESTIONS
    windows = split_windows(context.frozen_model, texts, settings.windows)
    perplexity = {"source": source, **_measure_perplexity(context, route, windows)}
    compared = [row for row in rows if not row[question_overlap.KEY]]
    worse = [row["task"] for row in select_significantly_worse_rows(compared)]
    change, size = (
        describe_perplexity(perplexity),
        f" ({perplexity['tokens']:,} tokens)" if perplexity["windows"] else "",
    )
    headline = (
        f"Worse on {len(worse)} of {len(compared)} tasks ({', '.join(worse) or 'none'}; p < 0.05, corrected);"
        f" {change} on {source}{size}."
    )
    note = f"Test examples of every task with seed {subject.seed}. {question_overlap.NOTE}"
    table = make_corrected_comparison_table(f"{route} on other tasks", _COLUMNS, rows, note)
    measured = [perplexity] if perplexity["windows"] else []
    text_table = Table(
        "Plain text", _PERPLEXITY_COLUMNS, measured, (_PERPLEXITY_NOTE, *note_omitted_perplexity_rows(perplexity))
    )
    model = shorten_model_name(context.base.model)
    title = f"Side effects ({model}): difference to the standard pass, 95 % intervals; {change}"
    figure = draw_differences(STUDY, title, [(_mark_searched_task(row), row) for row in rows], route)
    details = {"route": str(route), "text": source}
    return StudyResult(STUDY, headline, table, [figure], details, {"perplexity": text_table})


def interleave_questions(tasks: Sequence[Sequence[Example]]) -> list[str]:
    """One question of each task after the other, so that the first N are of all tasks."""
    return [example.question for row in itertools.zip_longest(*tasks) for example in row if example is not None]


def _compare_route_on_task(
    context: StudyContext, task: TaskWithAnswerMode, subject: RouteWithSearchedTask
) -> dict[str, Any]:
    scored = context.score_routes(f"on-{task}", task, subject.seed, {"route": subject.route})["routes"]
    standard, routed = scored["standard"], scored["route"]
    shared = question_overlap.find_contaminating_search_tasks(task, [subject.task]) if subject.has_source else ""
    return {
        "task": str(task),
        "searched": subject.was_searched_on_task(task),
        question_overlap.KEY: shared,
        "standard": statistics.mean(standard["correct"]),
        "accuracy": statistics.mean(routed["correct"]),
        "standard_truncated": statistics.mean(standard["truncated"]),
        "route_truncated": statistics.mean(routed["truncated"]),
        **compute_paired_score_difference(standard, routed),
    }


def _measure_perplexity(context: StudyContext, route: Route, windows: Sequence[Tokens]) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(windows).encode()).hexdigest()
    inputs = {"text": digest, "route": str(route), "numerics": context.frozen_model.numerics_id}
    routes = {"standard": context.standard_route, "route": route}

    def measure_text_likelihoods() -> dict[str, Any]:
        return {
            name: compute_negative_log_likelihoods(context.frozen_model, one, windows) for name, one in routes.items()
        }

    return compare_perplexities(
        windows, context.load_or_measure("plain-text", "scoring plain text", inputs, measure_text_likelihoods)
    )


def _mark_searched_task(row: Row) -> str:
    return str(row["task"]) + (" (searched on)" if row["searched"] else "")


def _format_truncation(row: Row) -> str:
    return f"{format_percent_number(row['standard_truncated'])} / {format_percent_number(row['route_truncated'])}"


_COLUMNS = [
    Column("task", _mark_searched_task, is_number=False),
    percentage_column("standard, %", "standard"),
    percentage_column("route, %", "accuracy"),
    *difference_columns(),
    number_column("fixed", "fixed"),
    number_column("broken", "broken"),
    number_column("n", "n"),
    question_overlap.COLUMN,
    Column("truncated, standard / route, %", _format_truncation),
]
_PERPLEXITY_COLUMNS = [
    make_text_column("text", "source"),
    number_column("perplexity, standard", "standard", "{:.3g}".format),
    number_column("route", "route", "{:.3g}".format),
    Column("ratio (95 % interval)", lambda row: f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"),
    number_column("rows", "windows"),
    number_column("tokens", "tokens"),
]
