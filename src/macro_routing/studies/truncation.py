"""Shares of truncated answers beside the accuracies of a main table."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.formatting import format_percent_number
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.result import SELECTED, STANDARD
from macro_routing.studies.tables import Column, Row, Table, make_text_column
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode


def summarize_truncation(
    runs: Mapping[tuple[str, TaskWithAnswerMode], Sequence[MethodRun]], standard_name: str
) -> list[dict[str, Any]]:
    """A line per model and way to choose a route: by task, the mean share of truncated answers over seeds."""
    shares: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (model, task), of_task in runs.items():
        seen = set()
        for run in of_task:
            for variant in run.result.variants:
                # Every run has the standard pass; one of the same name is that of the baseline's own run.
                name = STANDARD if variant.name == SELECTED["standard"] else variant.name
                if name == STANDARD and run.seed in seen:
                    continue
                if name == STANDARD:
                    seen.add(run.seed)
                shares.setdefault((model, name), {}).setdefault(str(task), []).append(variant.truncated_share)
    return [
        {
            "model": model,
            "method": standard_name if name == STANDARD else name,
            "truncated": {task: statistics.mean(values) for task, values in by_task.items()},
        }
        for (model, name), by_task in shares.items()
    ]


def make_truncation_table(rows: Sequence[Row], tasks: Sequence[str], sizes: str) -> Table:
    """Model, method, and the share by task."""

    def make_share_column(task: str) -> Column:
        return Column(task, lambda row: format_percent_number(row["truncated"].get(task)))

    columns = [make_text_column("model", "model"), make_text_column("method", "method")]
    return Table(
        "Truncated answers by model, method and task, %",
        [*columns, *map(make_share_column, tasks)],
        rows,
        [sizes, "Answers that reached a token limit; means over seeds."],
    )
