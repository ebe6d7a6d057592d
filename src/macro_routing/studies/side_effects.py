"""What a route does to everything it was not searched for: other tasks, and plain text."""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
from collections.abc import Sequence
from typing import Any

from macro_routing.engine.batching import Tokens
from macro_routing.report.formatting import format_percentage, shorten_model_name
from macro_routing.routes.route import Route
from macro_routing.studies import contamination
from macro_routing.studies.columns import comparisons_note, difference_columns, number_column, text_column
from macro_routing.studies.context import StudyContext, Subject
from macro_routing.studies.paired_comparisons import (
    comparisons_in,
    difference_row,
    differences_figure,
    losses_in,
    with_holm,
)
from macro_routing.studies.perplexity import change_told, left_out_notes, perplexities, surprise, text_of, windows
from macro_routing.studies.settings import SideEffectsSettings
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Row, Table
from macro_routing.studies.task_names import TaskName
from macro_routing.tasks.task import Example

STUDY = "side-effects"
QUESTIONS = "the tasks' own questions"


def run_side_effects(context: StudyContext, subject: Subject, settings: SideEffectsSettings) -> StudyResult:
    """Score the route on all tasks, and on plain text."""
    tasks, text = settings.task_names, settings.text
    route = subject.route
    rows = with_holm([_task_row(context, task, subject) for task in tasks])
    if text is not None:
        texts, source = [text_of(text)], text.name
    else:
        texts = questions_in_turn([context.prepared(task, subject.seed).splits.test for task in tasks])
        source = QUESTIONS
    plain = {"source": source, **_perplexity(context, route, windows(context.frozen, texts, settings.windows))}
    count = comparisons_in(rows)
    judged = [row for row in rows if not row[contamination.KEY]]
    worse = [row["task"] for row in losses_in(judged)]
    change = change_told(plain)
    headline = (
        f"Worse on {len(worse)} of {len(judged)} tasks ({', '.join(worse) or 'none'}; p < 0.05, corrected);"
        f" {change} on {plain['source']}."
    )
    tables = {
        TABLE: Table(f"{route} on other tasks", _columns(), rows, _notes(subject, count)),
        "perplexity": Table(
            "Plain text", _text_columns(), [plain] * (plain["windows"] > 0), (_NOTE, *left_out_notes(plain))
        ),
    }
    shown = [(_named(row), row) for row in rows]
    model = shorten_model_name(context.base.model)
    title = f"Side effects ({model}): difference to the standard pass, 95 % intervals; {change}"
    figure = differences_figure(STUDY, title, shown, route)
    return StudyResult(STUDY, headline, tables, [figure], count, {"route": str(route), "text": plain["source"]})


def _notes(subject: Subject, count: int) -> tuple[str, ...]:
    return (f"Test examples of every task with seed {subject.seed}. {contamination.NOTE}", comparisons_note(count))


def questions_in_turn(tasks: Sequence[Sequence[Example]]) -> list[str]:
    """One question of each task after the other, so that the first so many are of all tasks."""
    return [one.question for row in itertools.zip_longest(*tasks) for one in row if one is not None]


def _task_row(context: StudyContext, task: TaskName, subject: Subject) -> dict[str, Any]:
    scored = context.scored(f"on-{task}", task, subject.seed, {"route": subject.route})["routes"]
    standard, routed = scored["standard"], scored["route"]
    row = {
        "task": str(task),
        "searched": subject.was_searched_on(task),
        contamination.KEY: contamination.find_contaminating_tasks(task, [subject.task]) if subject.is_known else "",
        "standard": statistics.mean(standard["correct"]),
        "accuracy": statistics.mean(routed["correct"]),
        "standard_cut": statistics.mean(standard["cut"]),
        "route_cut": statistics.mean(routed["cut"]),
        **difference_row(standard["correct"], routed["correct"]),
    }
    return {**row, "p": None} if subject.route.is_standard else row


def _perplexity(context: StudyContext, route: Route, rows: Sequence[Tokens]) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
    mark = {"text": digest, "route": str(route), "numerics": context.frozen.numerics_id}
    routes = {"standard": context.standard, "route": route}

    def measure() -> dict[str, Any]:
        return {name: surprise(context.frozen, one, rows) for name, one in routes.items()}

    return perplexities(rows, context.cell("plain-text", mark, measure))


_NOTE = (
    "Perplexity over rows of up to 256 tokens; the interval resamples rows. Questions of the tasks are short and of one"
    " kind; name a text of your own with --text."
)


def _columns() -> list[Column]:
    return [
        Column("task", _named, is_number=False),
        Column("standard, %", lambda row: format_percentage(row["standard"])),
        Column("route, %", lambda row: format_percentage(row["accuracy"])),
        *difference_columns(),
        number_column("fixed", "fixed"),
        number_column("broken", "broken"),
        number_column("n", "n"),
        contamination.contamination_column(),
        Column("cut off, standard / route, %", _cut_off),
    ]


def _named(row: Row) -> str:
    return str(row["task"]) + (" (searched on)" if row["searched"] else "")


def _cut_off(row: Row) -> str:
    return f"{format_percentage(row['standard_cut'])} / {format_percentage(row['route_cut'])}"


def _text_columns() -> list[Column]:
    return [
        text_column("text", "source"),
        Column("perplexity, standard", lambda row: f"{row['standard']:.3g}"),
        Column("route", lambda row: f"{row['route']:.3g}"),
        Column("ratio (95 % interval)", lambda row: f"{row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})"),
        number_column("rows", "windows"),
        number_column("tokens", "tokens"),
    ]
