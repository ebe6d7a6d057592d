"""What both routes wrote: how much, and how often a budget cut them off.

A route that only reasons shorter looks like one that reasons better, since fewer of its answers are cut off; so
accuracy is also told over the examples that neither had cut off.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.formatting import format_percent, format_points
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.tables import table
from macro_routing.routes.route import Route
from macro_routing.runs.result import RunResult

_COLUMNS = (
    "",
    "tokens",
    "median",
    "reasoning",
    "answer",
    "reasoning cut off",
    "answer cut off",
    "right if not cut off",
)
_NOTHING = "Choices were compared by likelihood: nothing was written, so nothing was cut off and no token counted."

Outcomes = Sequence[Mapping[str, Any]]


def writing(answers: Mapping[str, Any], result: RunResult, *, writes: bool, resolved: Mapping[str, Any]) -> Markup:
    """Token counts and cut-off shares of the chosen route and the standard pass on the test set."""
    if not writes:
        return element("p", _NOTHING)
    standard, routed = answers["routes"][str(Route.standard(result.layers))], answers["routes"][result.route]
    budgets = resolved["decoding"]
    reasons = budgets.get("mode") == "reasoning"
    columns = [name for name in _COLUMNS if reasons or "reasoning" not in name]
    told = [dict(zip(_COLUMNS, row, strict=True)) for row in (_row("standard pass", standard), _row("route", routed))]
    rows = [[row[name] for name in columns] for row in told]
    limits = f"The budget of an answer was {budgets.get('answer_budget', '?')} tokens"
    if reasons:
        limits += f", that of the reasoning before it {budgets.get('reasoning_budget', '?')}"
    notes = [f"{limits}. Tokens are means per example.", _uncut(standard, routed)]
    return joined(table(columns, rows, numbers=columns[1:]), *[element("p", note, class_="note") for note in notes])


def is_cut(one: Mapping[str, Any]) -> bool:
    """Whether a budget ended the answer or its reasoning."""
    return bool(one["reasoning_truncated"] or one["answer_truncated"])


def _row(name: str, outcomes: Outcomes) -> list[str]:
    tokens = [one["reasoning_tokens"] + one["answer_tokens"] for one in outcomes]
    whole = [one for one in outcomes if not is_cut(one)]
    right = sum(one["correct"] for one in whole)
    share = format_percent(right / len(whole) if whole else None)
    return [
        element("b", name),
        f"{statistics.mean(tokens):.1f}",
        f"{statistics.median(tokens):g}",
        f"{statistics.mean(one['reasoning_tokens'] for one in outcomes):.1f}",
        f"{statistics.mean(one['answer_tokens'] for one in outcomes):.1f}",
        format_percent(statistics.mean(bool(one["reasoning_truncated"]) for one in outcomes)),
        format_percent(statistics.mean(bool(one["answer_truncated"]) for one in outcomes)),
        joined(share, element("small", f"{right} of {len(whole)}")),
    ]


def _uncut(standard: Outcomes, routed: Outcomes) -> str:
    """The comparison where cutting off played no part."""
    whole = [pair for pair in zip(standard, routed, strict=True) if not any(map(is_cut, pair))]
    if len(whole) == len(standard):
        return "No answer of either was cut off."
    if not whole:
        return "Of every example at least one of the two answers was cut off."
    before, after = (sum(pair[side]["correct"] for pair in whole) / len(whole) for side in (0, 1))
    return (
        f"On the {len(whole)} of {len(standard)} examples that neither had cut off: {format_percent(before)} →"
        f" {format_percent(after)}, {format_points(after - before)} points. Where the gain vanishes here, the route"
        " rather stays within the budget than answers better."
    )
