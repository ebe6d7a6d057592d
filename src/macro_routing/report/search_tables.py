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
from macro_routing.report.run_data import is_decided_by_test
from macro_routing.report.tables import ReportTable, Row, TableCell
from macro_routing.runs.progress import RoundReport

_MAX_CANDIDATES = 100
_STANDARD = "L0 RJ"
_ROUND_COLUMNS = (
    *("round", "best", "standard", "median", "examples", "different", "stopped"),
    *("done", "known", "saved", "truncated", "time"),
)
_CANDIDATE_COLUMNS = ("route", "accuracy", "validation", "rank", "raw rank", "log-probability", "length", "")

_FINALIST_COLUMNS = (*("route", "measured", "p", "correct", "expected gain", "certainty", "layers", ""),)

_ROUNDS_NOTE = (
    "Different: different routes among the draws; the rest are repeats. Best and median: of draws scored to the end. "
    "Done, known and saved count evaluations, one route on one example each: done are those computed in this round, "
    "the standard pass included; known are those that the score store held; saved are repeats and what stopped draws "
    "were spared."
)
_CANDIDATES_NOTE = (
    "The best on the validation examples is chosen; ties go to the better one on the training examples, then to the "
    "shorter, then to the more probable. Rank counts different routes, raw rank counts programs, several of which can "
    "be one route; the log-probability is that of the most probable of them. One without ranks was not decoded from "
    "the policy: it is the anchor or came from the draws."
)
_FINALISTS_NOTE = (
    "The difference to the standard pass is measured on {held_out} held-out examples: the holdout, {holdout} of the "
    "training examples, and {validation} of validation. p: one-sided paired test that the gain exceeds what it "
    "must, corrected for the number of finalists; only finalists with p of at most {level:g} are returned. A finalist "
    "with additional layers must gain their price; with the objective speed it may lose the margin. The expected gain "
    "is shrunk towards zero, since most finalists gain nothing; ± is its standard deviation, and certainty the "
    "probability that the true gain exceeds what it must. "
)
_ACCURACY_RULE = (
    "Of those that pass, the one with the fewest layers is returned that cannot be distinguished from the most "
    "accurate; without any, the standard pass."
)
_SPEED_RULE = "Of those that pass, the one with the fewest layers is returned; without any, the standard pass."


def render_rounds_table(rounds: Sequence[RoundReport], draws: int) -> Markup:
    """Every round, and what was computed and saved in total; ``draws`` a round, where its report does not say."""
    done, known, saved = (sum(getattr(report, name) for report in rounds) for name in ("run", "known", "saved"))
    duration = format_duration(sum(report.seconds for report in rounds))
    counts: Row = [format_count(done), format_count(known), _make_saved_evaluations_cell(done + known, saved)]
    footer: Row = ["all", *[""] * 6, *counts, "", duration]
    rows = [_make_round_row(report, report.draws or draws) for report in rounds]
    # Columns that would show zeros only are left out.
    zeros = {
        *(["stopped"] if not any(report.stopped for report in rounds) else []),
        *(["truncated"] if not any(report.truncated_share for report in rounds) else []),
    }
    shown = [index for index, name in enumerate(_ROUND_COLUMNS) if name not in zeros]
    columns = [_ROUND_COLUMNS[index] for index in shown]
    kept: list[Row] = [[row[index] for index in shown] for row in (*rows, footer)]
    return render_table(ReportTable(columns, kept[:-1], numbers=columns, footer=kept[-1]), [_ROUNDS_NOTE])


def _make_round_row(report: RoundReport, draws: int) -> Row:
    return [
        TableCell(str(report.number), report.purpose) if report.purpose else str(report.number),
        # Without a complete draw there is no best one either.
        format_percent(None if report.median is None else report.best),
        TableCell(format_percent(report.standard), format_percent_interval(report.standard_low, report.standard_high)),
        format_percent(report.median),
        format_count(report.examples),
        f"{report.different} of {draws}",
        f"{report.stopped} of {draws}",
        format_count(report.run),
        format_count(report.known),
        _make_saved_evaluations_cell(report.run + report.known, report.saved),
        format_percent(report.truncated_share),
        format_duration(report.seconds),
    ]


def _make_saved_evaluations_cell(done: int, saved: int) -> TableCell:
    return TableCell(format_count(saved), format_percent(saved / (done + saved) if done + saved else None))


def render_candidates_table(choice: dict[str, Any], max_error_probability: float) -> Markup:
    """The final candidates with their validation scores, or with what the final decision knew about them."""
    candidates = choice["candidates"]
    shown = candidates[:_MAX_CANDIDATES]
    columns, make_row, note = (
        (_FINALIST_COLUMNS, _make_finalist_row, _describe_decision_rule(candidates, max_error_probability))
        if is_decided_by_test(choice)
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


def _describe_decision_rule(candidates: Sequence[dict[str, Any]], max_error_probability: float) -> str:
    """How the final decision chose, and on how many examples."""
    first = candidates[0]
    note = _FINALISTS_NOTE.format(
        held_out=format_count(first["n"] + first["holdout_n"]),
        holdout=format_count(first["holdout_n"]),
        validation=format_count(first["n"]),
        level=max_error_probability,
    )
    allows_loss = any((candidate["required_gain"] or 0) < 0 for candidate in candidates)
    return note + (_SPEED_RULE if allows_loss else _ACCURACY_RULE)


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
        NO_VALUE
        if gain is None or standard is None or not n
        else TableCell(
            format_points((correct - standard["correct"] - standard["holdout"]) / n),
            f"must exceed {format_points(required)}",
        ),
        NO_VALUE if p_value is None else format_p_value(p_value),
        TableCell(format_percent(correct / n), f"{format_count(correct)} of {format_count(n)}") if n else NO_VALUE,
        NO_VALUE if gain is None else TableCell(format_points(gain), f"± {100 * candidate['expected_deviation']:.1f}"),
        format_percent(candidate.get("certainty")),
        str(candidate["length"]),
        _make_remark_cell(candidate, chosen),
    ]


def _make_remark_cell(candidate: dict[str, Any], chosen: str) -> str | TableCell:
    if candidate["turned_down"]:
        return TableCell(f"turned down: {candidate['turned_down']}", kind="remark")
    return "chosen" if candidate["route"] == chosen else ""
