"""Tokens that both routes generated, and how often a budget truncated them.

A route that only reasons shorter looks like one that reasons better, since fewer of its answers are truncated. So
accuracy is also shown over the examples on which neither was truncated.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from macro_routing.report.formatting import format_percent
from macro_routing.report.rendering import render_paragraphs, render_template
from macro_routing.report.tables import ReportTable, TableCell
from macro_routing.routes.route import Route
from macro_routing.runs.result import RunResult

Outcomes = Sequence[Mapping[str, Any]]


def render_token_stats(
    answers: Mapping[str, Any], result: RunResult, *, generates: bool, resolved: Mapping[str, Any]
) -> Markup:
    """Token counts and truncation rates of the chosen route and the standard pass on the test set."""
    if not generates:
        return render_paragraphs(
            "Choices were compared by likelihood: no text was generated, so nothing was truncated and no token counted."
        )
    standard, routed = answers["routes"][str(Route.standard(result.layers))], answers["routes"][result.route]
    budgets = resolved["decoding"]
    reasons = budgets.get("mode") == "reasoning"
    stats = [_make_token_stats_row("standard pass", standard), _make_token_stats_row("route", routed)]
    columns = [name for name in stats[0] if reasons or "reasoning" not in name]
    pairs = [pair for pair in zip(standard, routed, strict=True) if not any(map(is_truncated, pair))]
    before, after = (sum(pair[side]["correct"] for pair in pairs) / max(len(pairs), 1) for side in (0, 1))
    return render_template(
        "token_stats.html",
        table=ReportTable(columns, [[row[name] for name in columns] for row in stats], numbers=columns[1:]),
        budgets=budgets,
        reasons=reasons,
        untruncated=len(pairs),
        total=len(standard),
        before=before,
        after=after,
    )


def is_truncated(outcome: Mapping[str, Any]) -> bool:
    """Whether a budget ended the answer or its reasoning."""
    return bool(outcome["reasoning_truncated"] or outcome["answer_truncated"])


def _make_token_stats_row(name: str, outcomes: Outcomes) -> dict[str, str | TableCell]:
    tokens = [outcome["reasoning_tokens"] + outcome["answer_tokens"] for outcome in outcomes]
    complete = [outcome for outcome in outcomes if not is_truncated(outcome)]
    correct = sum(outcome["correct"] for outcome in complete)

    def mean_of_field(field: str) -> float:
        return statistics.mean(float(outcome[field]) for outcome in outcomes)

    return {
        "": TableCell(name, kind="bold"),
        "tokens": f"{statistics.mean(tokens):.1f}",
        "median": f"{statistics.median(tokens):g}",
        "reasoning": f"{mean_of_field('reasoning_tokens'):.1f}",
        "answer": f"{mean_of_field('answer_tokens'):.1f}",
        "reasoning truncated": format_percent(mean_of_field("reasoning_truncated")),
        "answer truncated": format_percent(mean_of_field("answer_truncated")),
        "correct if not truncated": TableCell(
            format_percent(correct / len(complete) if complete else None), f"{correct} of {len(complete)}"
        ),
    }
