"""The search's rounds with what they cost, and its final candidates."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.report.formatting import (
    NO_VALUE,
    format_count,
    format_duration,
    format_p_value,
    format_percent,
    format_percent_interval,
    format_points,
    use_minus_sign,
)
from macro_routing.report.rendering import render_table
from macro_routing.report.tables import ReportTable, Row, TableCell
from macro_routing.runs.progress import RoundReport

_MAX_CANDIDATES = 100
_STANDARD = "L0 RJ"
_ROUND_COLUMNS = (
    *("round", "examples", "different", "best", "median", "stopped", "standard"),
    *("done", "known", "saved", "truncated", "time"),
)
_CANDIDATE_COLUMNS = ("route", "accuracy", "validation", "rank", "raw rank", "log-probability", "length", "")

_FINALIST_COLUMNS = ("route", "correct", "measured", "expected gain", "must exceed", "p", "layers", "")

_ROUNDS_NOTE = (
    "Different: routes among the draws; the rest are repeats. Best and median: of the draws scored to the end. "
    "Done, known and saved count evaluations, one route on one example each: done are those computed in this round, "
    "the standard pass included; known are those that the score store held; saved are repeats and what stopped draws "
    "were spared."
)
_CANDIDATES_NOTE = (
    "The best on the validation examples is chosen; ties go to the better one on the training examples, then to the "
    "shorter, then to the more probable. Rank counts different routes, raw rank counts programs, several of which can "
    "be one route. One without ranks was not decoded from the policy: it is the anchor or came from the draws."
)
_FINALISTS_NOTE = (
    "Correct: on the holdout and validation examples together, none of which the search used; measured is the "
    "difference to the standard pass there. The expected gain is shrunk towards zero, since most finalists gain "
    "nothing; ± is its standard deviation. A "
    "finalist with additional layers must gain their price; with the objective speed it may lose the margin. p: "
    "one-sided paired test, corrected for the number of finalists."
)


def render_rounds_table(rounds: Sequence[RoundReport], draws: int) -> Markup:
    """Every round, and what was computed and saved in total; ``draws`` a round, where its report does not say."""
    done, known, saved = (sum(getattr(report, name) for report in rounds) for name in ("run", "known", "saved"))
    duration = format_duration(sum(report.seconds for report in rounds))
    counts: Row = [format_count(done), format_count(known), _make_saved_evaluations_cell(done + known, saved)]
    footer: Row = ["all", *[""] * 6, *counts, "", duration]
    rows = [_make_round_row(report, report.draws or draws) for report in rounds]
    return render_table(ReportTable(_ROUND_COLUMNS, rows, numbers=_ROUND_COLUMNS, footer=footer), [_ROUNDS_NOTE])


def _make_round_row(report: RoundReport, draws: int) -> Row:
    return [
        TableCell(str(report.number), report.purpose) if report.purpose else str(report.number),
        format_count(report.examples),
        f"{report.different} of {draws}",
        # Without a complete draw there is no best one either.
        format_percent(None if report.median is None else report.best),
        format_percent(report.median),
        f"{report.stopped} of {draws}",
        TableCell(format_percent(report.standard), format_percent_interval(report.standard_low, report.standard_high)),
        format_count(report.run),
        format_count(report.known),
        _make_saved_evaluations_cell(report.run + report.known, report.saved),
        format_percent(report.cut_off),
        format_duration(report.seconds),
    ]


def _make_saved_evaluations_cell(done: int, saved: int) -> TableCell:
    return TableCell(format_count(saved), format_percent(saved / (done + saved) if done + saved else None))


def render_candidates_table(choice: dict[str, Any]) -> Markup:
    """The final candidates with their validation scores, or with what the final decision knew about them."""
    candidates = choice["candidates"]
    shown = candidates[:_MAX_CANDIDATES]
    is_tested = any("p_value" in candidate for candidate in candidates)
    columns, make_row, note = (
        (_FINALIST_COLUMNS, _make_finalist_row, _FINALISTS_NOTE)
        if is_tested
        else (_CANDIDATE_COLUMNS, _make_candidate_row, _CANDIDATES_NOTE)
    )
    standard = next((candidate for candidate in candidates if candidate["route"] == _STANDARD), None)
    rows = [make_row(candidate, choice["chosen"], standard) for candidate in shown]
    chosen = next((index for index, candidate in enumerate(shown) if candidate["route"] == choice["chosen"]), -1)
    notes = [note]
    if len(candidates) > len(shown):
        notes.append(f"{len(candidates) - len(shown)} more candidates are in candidates.json.")
    if choice["refused"]:
        notes.append(f"The standard pass was chosen {choice['refused']}.")
    return render_table(ReportTable(columns, rows, columns[1:-1], chosen), notes)


def _make_candidate_row(candidate: dict[str, Any], chosen: str, _: dict[str, Any] | None) -> Row:
    correct, n, log_probability = candidate["correct"], candidate["n"], candidate["log_probability"]
    return [
        TableCell(candidate["route"], kind="route"),
        TableCell(format_percent(correct / n), format_percent_interval(*wilson_interval(correct / n, n)))
        if n
        else NO_VALUE,
        f"{format_count(correct)} of {format_count(n)}",
        NO_VALUE if candidate["rank"] is None else str(candidate["rank"]),
        NO_VALUE if candidate["raw_rank"] is None else str(candidate["raw_rank"]),
        NO_VALUE if log_probability is None else use_minus_sign(f"{log_probability:.2f}"),
        str(candidate["length"]),
        _make_remark_cell(candidate, chosen),
    ]


def _make_finalist_row(candidate: dict[str, Any], chosen: str, standard: dict[str, Any] | None) -> Row:
    correct, n = candidate["correct"] + candidate["holdout"], candidate["n"] + candidate["holdout_n"]
    gain, required, p_value = candidate["expected_gain"], candidate["required_gain"], candidate["p_value"]
    return [
        TableCell(candidate["route"], kind="route"),
        TableCell(format_percent(correct / n), f"{format_count(correct)} of {format_count(n)}") if n else NO_VALUE,
        NO_VALUE
        if gain is None or standard is None or not n
        else format_points((correct - standard["correct"] - standard["holdout"]) / n),
        NO_VALUE if gain is None else TableCell(format_points(gain), f"± {100 * candidate['expected_deviation']:.1f}"),
        NO_VALUE if required is None else format_points(required),
        NO_VALUE if p_value is None else format_p_value(p_value),
        str(candidate["length"]),
        _make_remark_cell(candidate, chosen),
    ]


def _make_remark_cell(candidate: dict[str, Any], chosen: str) -> str | TableCell:
    if candidate["turned_down"]:
        return TableCell(f"turned down: {candidate['turned_down']}", kind="remark")
    return "chosen" if candidate["route"] == chosen else ""
