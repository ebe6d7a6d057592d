"""What the search did: its rounds with what they cost, and its final candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from macro_routing.report import numbers
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.tables import route_text, table
from macro_routing.runs.outcome_report import wilson_interval
from macro_routing.runs.progress import RoundReport

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
    spent = numbers.seconds(sum(one.seconds for one in rounds))
    sums = ["all", *blank, numbers.count(done), _saved(done, saved), "", spent]
    rows = [_round_row(one, draws) for one in rounds]
    return joined(
        table(_ROUND_COLUMNS, rows, numbers=_ROUND_COLUMNS, last=sums if rounds else ()),
        element("p", _EVALUATIONS, class_="note"),
    )


def _round_row(one: RoundReport, draws: int) -> list[str]:
    standard = joined(
        numbers.percent(one.standard), element("small", numbers.interval(one.standard_low, one.standard_high))
    )
    return [
        str(one.number),
        numbers.count(one.examples),
        f"{one.different} of {draws}",
        # Without a complete draw there is no best one either.
        numbers.percent(None if one.median is None else one.best),
        numbers.percent(one.median),
        f"{one.stopped} of {draws}",
        standard,
        numbers.count(one.run),
        _saved(one.run, one.saved),
        numbers.percent(one.cut_off),
        numbers.seconds(one.seconds),
    ]


def _saved(done: int, saved: int) -> Markup:
    share = numbers.percent(saved / (done + saved) if done + saved else None)
    return joined(numbers.count(saved), element("small", share))


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
        return numbers.NONE
    bounds = wilson_interval(correct / n, n)
    return joined(numbers.percent(correct / n), element("small", numbers.interval(*bounds)))


def _candidate_row(one: dict[str, Any], chosen: str) -> list[str]:
    remark = f"turned down: {one['turned_down']}" if one["turned_down"] else "chosen" if one["route"] == chosen else ""
    log_probability = one["log_probability"]
    return [
        route_text(one["route"]),
        _accuracy(one["correct"], one["n"]),
        f"{numbers.count(one['correct'])} of {numbers.count(one['n'])}",
        numbers.NONE if one["rank"] is None else str(one["rank"]),
        numbers.NONE if one["raw_rank"] is None else str(one["raw_rank"]),
        numbers.NONE if log_probability is None else f"{log_probability:.2f}".replace("-", "−"),
        str(one["length"]),
        element("div", remark, class_="remark") if one["turned_down"] else remark,
    ]
