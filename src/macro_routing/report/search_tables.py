"""What the search did: its rounds with what they cost, and its final candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from macro_routing.report.formatting import (
    NO_VALUE,
    format_count,
    format_duration,
    format_percent,
    format_percent_interval,
)
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.tables import route_text, table
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.round_report import wilson_interval

_MOST_CANDIDATES = 100
_ROUND_COLUMNS = (
    *("round", "examples", "different", "best", "median", "stopped", "standard"),
    *("done", "saved", "cut off", "time"),
)
_CANDIDATE_COLUMNS = ("route", "accuracy", "validation", "rank", "raw rank", "log-probability", "length", "")

_EVALUATIONS = (
    "Different: routes among the draws; the rest are repeats. Best and median: of the draws scored to the end. "
    "Done and saved count evaluations, one route on one example each: done are those worked out in this round, the "
    "standard pass included; saved are repeats, what stopped draws were spared, and what the score store knew."
)
_RANKS = (
    "The best on the validation examples is chosen; ties go to the better one on the training examples, then to the "
    "shorter, then to the more probable. Rank counts different routes, raw rank counts programs, several of which can "
    "be one route. One without ranks was not decoded from the policy: it is the anchor or came from the draws."
)


def rounds_table(rounds: Sequence[RoundReport], draws: int) -> Markup:
    """Every round, and what was worked out and saved in all."""
    done, saved = sum(one.run for one in rounds), sum(one.saved for one in rounds)
    blank = [""] * 6
    spent = format_duration(sum(one.seconds for one in rounds))
    sums = ["all", *blank, format_count(done), _saved(done, saved), "", spent]
    rows = [_round_row(one, draws) for one in rounds]
    return joined(
        table(_ROUND_COLUMNS, rows, numbers=_ROUND_COLUMNS, last=sums if rounds else ()),
        element("p", _EVALUATIONS, class_="note"),
    )


def _round_row(one: RoundReport, draws: int) -> list[str]:
    standard = joined(
        format_percent(one.standard), element("small", format_percent_interval(one.standard_low, one.standard_high))
    )
    return [
        str(one.number),
        format_count(one.examples),
        f"{one.different} of {draws}",
        # Without a complete draw there is no best one either.
        format_percent(None if one.median is None else one.best),
        format_percent(one.median),
        f"{one.stopped} of {draws}",
        standard,
        format_count(one.run),
        _saved(one.run, one.saved),
        format_percent(one.cut_off),
        format_duration(one.seconds),
    ]


def _saved(done: int, saved: int) -> Markup:
    share = format_percent(saved / (done + saved) if done + saved else None)
    return joined(format_count(saved), element("small", share))


def candidates_table(choice: dict[str, Any]) -> Markup:
    """The final candidates with their validation scores."""
    candidates = choice["candidates"]
    shown = candidates[:_MOST_CANDIDATES]
    rows = [_candidate_row(one, choice["chosen"]) for one in shown]
    chosen = next((place for place, one in enumerate(shown) if one["route"] == choice["chosen"]), -1)
    notes = [_RANKS]
    if len(candidates) > len(shown):
        notes.append(f"{len(candidates) - len(shown)} more candidates are in candidates.json.")
    if choice["refused"]:
        notes.append(f"The standard pass was chosen {choice['refused']}.")
    drawn = table(_CANDIDATE_COLUMNS, rows, numbers=_CANDIDATE_COLUMNS[1:-1], chosen=chosen)
    return joined(drawn, *[element("p", note, class_="note") for note in notes])


def _accuracy(correct: float, n: int) -> str:
    if not n:
        return NO_VALUE
    bounds = wilson_interval(correct / n, n)
    return joined(format_percent(correct / n), element("small", format_percent_interval(*bounds)))


def _candidate_row(one: dict[str, Any], chosen: str) -> list[str]:
    remark = f"turned down: {one['turned_down']}" if one["turned_down"] else "chosen" if one["route"] == chosen else ""
    log_probability = one["log_probability"]
    return [
        route_text(one["route"]),
        _accuracy(one["correct"], one["n"]),
        f"{format_count(one['correct'])} of {format_count(one['n'])}",
        NO_VALUE if one["rank"] is None else str(one["rank"]),
        NO_VALUE if one["raw_rank"] is None else str(one["raw_rank"]),
        NO_VALUE if log_probability is None else f"{log_probability:.2f}".replace("-", "−"),
        str(one["length"]),
        element("div", remark, class_="remark") if one["turned_down"] else remark,
    ]
