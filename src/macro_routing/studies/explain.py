"""Where a route's gain comes from: each deviation dropped in turn, fixed examples, the part of truncated answers."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.formatting import format_percent_number, format_points, format_points_interval
from macro_routing.studies.context import RouteWithSearchedTask, StudyContext
from macro_routing.studies.droppable_deviations import Deviation, list_route_deviations
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    compute_paired_score_difference,
    draw_differences,
    make_corrected_comparison_table,
)
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
from macro_routing.tasks.task import Example

STUDY = "explain"
WHOLE_ROUTE = "the whole route"
_MAX_EXAMPLES = 20
"""Of each kind in the table of examples."""
_TRUNCATION_NOTE = (
    "The difference to the standard pass in points of accuracy, by what happened to the answers. The gain of a route"
    " that only writes shorter answers is under *was truncated, is not*."
)
_COLUMNS = [
    number_column("no.", "number"),
    make_text_column("deviation", "deviation"),
    percentage_column("correct without it, %", "accuracy"),
    *difference_columns("worth, points"),
    number_column("fixed", "fixed"),
    number_column("broken", "broken"),
    number_column("alone, points", "alone", format_points),
    make_text_column("what is left", "left", is_code=True),
    make_text_column("", "remark"),
]
_TRUNCATION_COLUMNS = [
    percentage_column("truncated, standard, %", "standard_truncated"),
    percentage_column("truncated, route, %", "route_truncated"),
    number_column("difference, points", "difference", format_points),
    number_column("was truncated, is not", "fewer_truncated", format_points),
    number_column("was not, is truncated", "more_truncated", format_points),
    number_column("both are truncated", "still_truncated", format_points),
    number_column("neither is truncated", "rest", format_points),
]
_EXAMPLE_COLUMNS = [
    make_text_column("", "kind"),
    make_text_column("example", "example"),
    Column("question", lambda row: row["question"][:120], is_number=False),
    Column("changes back without deviation", lambda row: ", ".join(row["needs"]) or "none alone", is_number=False),
]

Scores = Mapping[str, Mapping[str, Any]]
"""By name of a route: its answers to the examples."""


def ablate_route_deviations(context: StudyContext, subject: RouteWithSearchedTask) -> StudyResult:
    """Measure the route, the route without each of its deviations, and each deviation alone."""
    route, task, seed = subject.route, subject.task, subject.seed
    deviations = list_route_deviations(route)
    routes = {"route": route}
    for number, deviation in enumerate(deviations):
        for name, variant in (("without", deviation.without), ("alone", deviation.alone)):
            if variant is not None:
                routes[f"{name}-{number}"] = variant
    examples = context.prepare_task(task, seed).splits.test
    scores: Scores = context.score_routes(f"on-{task}", task, seed, routes)["routes"]
    rows = add_holm_correction([_compare_route_with_standard_pass(scores), *_ablate_deviations(deviations, scores)])
    truncation = split_difference_by_truncation(scores["standard"], scores["route"])
    whole, accuracy = rows[0], statistics.mean(scores["route"]["correct"])
    note = (
        f"Seed {seed}, n = {whole['n']}; the whole route has {format_percent_number(accuracy)} % correct. Each"
        " deviation is dropped in turn, the others kept: the difference is what the whole route has over what is"
        " left. *Alone* is the standard pass with this deviation only, against the standard pass. The first line is the"
        " whole route against the standard pass. Deviations work together, so the lines need not add up."
    )
    table = make_corrected_comparison_table(f"What each deviation of {route} is worth on {task}", _COLUMNS, rows, note)
    truncation_notes = (f"{_TRUNCATION_NOTE} n = {truncation['n']}.",)
    other_tables = {
        "truncated": Table(
            "How much of the gain is fewer truncated answers", _TRUNCATION_COLUMNS, [truncation], truncation_notes
        ),
        "examples": _make_changed_examples_table(examples, scores),
    }
    where = f"{context.describe_model_and_tasks([task])}, n = {whole['n']}"
    title = f"What is lost without each deviation, 95 % intervals ({where})"
    shown = [(row["deviation"], row) for row in rows if row.get("p") is not None]
    figures = [draw_differences(STUDY, title, shown, route)] if shown else []
    majority = Counter(example.answer for example in examples).most_common(1)[0][1] / len(examples)
    headline = (
        "The route is the standard pass: there is nothing to explain."
        if route.is_standard
        else _describe_gain_and_truncation(str(route), whole, truncation, majority)
    )
    details = {"route": str(route), "commonest_answer": majority}
    return StudyResult(STUDY, headline, table, figures, details, other_tables)


def _describe_gain_and_truncation(route: str, whole: Row, truncation: Row, majority: float) -> str:
    return (
        f"{route} differs from the standard pass by {format_points(whole['difference'])} points"
        f" ({format_points_interval(whole['low'], whole['high'])}, n = {whole['n']}): {whole['fixed']} fixed,"
        f" {whole['broken']} broken; {format_points(truncation['by_truncation'])} of it on answers that were or became"
        f" truncated. The majority-answer baseline has {100 * majority:.1f} %."
    )


def _compare_route_with_standard_pass(scores: Scores) -> dict[str, Any]:
    standard, routed = (statistics.mean(scores[name]["correct"]) for name in ("standard", "route"))
    row = {"deviation": WHOLE_ROUTE, "accuracy": standard, "alone": routed - standard}
    return {**row, **_compare_route_with_variant(scores, "standard")}


def _ablate_deviations(deviations: Sequence[Deviation], scores: Scores) -> list[dict[str, Any]]:
    """What is lost without each deviation, and what each gives alone."""
    rows = []
    standard = scores["standard"]
    for number, deviation in enumerate(deviations):
        without, alone = scores.get(f"without-{number}"), scores.get(f"alone-{number}")
        remark = "; ".join(text for text in (deviation.reason, deviation.remark) if text)
        row: dict[str, Any] = {"number": number + 1, "deviation": deviation.description, "remark": remark}
        if without is not None:
            row |= {
                "accuracy": statistics.mean(without["correct"]),
                **_compare_route_with_variant(scores, f"without-{number}"),
            }
            if without["route"] == standard["route"]:  # the only deviation: compared above already
                row |= {"p": None, "remark": "it is all that differs"}
        if alone is not None:
            row["alone"] = statistics.mean(alone["correct"]) - statistics.mean(standard["correct"])
        rows.append(row)
    return rows


def _compare_route_with_variant(scores: Scores, name: str) -> dict[str, Any]:
    """The route against what is left of it."""
    return {**compute_paired_score_difference(scores[name], scores["route"]), "left": scores[name]["route"]}


def split_difference_by_truncation(standard: Mapping[str, Any], routed: Mapping[str, Any]) -> dict[str, Any]:
    """The difference split into examples on which either answer was truncated by a budget, and the others."""
    sums: dict[tuple[bool, bool], int] = Counter()
    columns = (standard["correct"], routed["correct"], standard["truncated"], routed["truncated"])
    for before, after, was_truncated, is_truncated in zip(*columns, strict=True):
        sums[bool(was_truncated), bool(is_truncated)] += after - before
    n = len(standard["correct"])
    parts = {(was, now): sums[was, now] / n for was in (False, True) for now in (False, True)}
    truncated = parts[True, False] + parts[False, True] + parts[True, True]
    return {
        "standard_truncated": statistics.mean(standard["truncated"]),
        "route_truncated": statistics.mean(routed["truncated"]),
        "difference": sum(parts.values()),
        "fewer_truncated": parts[True, False],
        "more_truncated": parts[False, True],
        "still_truncated": parts[True, True],
        "by_truncation": truncated,
        "rest": parts[False, False],
        "n": n,
    }


def _make_changed_examples_table(examples: Sequence[Example], scores: Scores) -> Table:
    """Which examples the route fixes and breaks, and without which deviation they change back."""
    standard, routed = scores["standard"]["correct"], scores["route"]["correct"]
    numbers = {str(int(name.split("-")[1]) + 1): name for name in scores if name.startswith("without-")}
    rows = [
        {
            "kind": "fixed" if routed[index] else "broken",
            "example": example.id,
            "question": example.question,
            "needs": [number for number, name in numbers.items() if scores[name]["correct"][index] != routed[index]],
        }
        for index, example in enumerate(examples)
        if standard[index] != routed[index]
    ]
    kinds = [[row for row in rows if row["kind"] == kind][:_MAX_EXAMPLES] for kind in ("fixed", "broken")]
    note = (
        f"The first {_MAX_EXAMPLES} of each kind; {len(rows)} answers changed from correct to wrong or back. Deviations"
        " are numbered as in the study's main table."
    )
    return Table("Examples that the route fixes and breaks", _EXAMPLE_COLUMNS, [*kinds[0], *kinds[1]], (note,))
