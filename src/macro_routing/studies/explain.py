"""Where a route's gain comes from: each deviation dropped in turn, examples it fixes, the part of cut-off answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.formatting import format_percentage, format_points
from macro_routing.studies.columns import comparisons_note, difference_columns, number_column, text_column
from macro_routing.studies.context import StudyContext, Subject
from macro_routing.studies.paired_comparisons import comparisons_in, difference_row, differences_figure, with_holm
from macro_routing.studies.route_deviations import Deviation, deviations
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Table
from macro_routing.tasks.task import Example

STUDY = "explain"
WHOLE = "the whole route"
_SHOWN = 20
"""Examples of each kind in the table of examples."""


def run_explain(context: StudyContext, subject: Subject) -> StudyResult:
    """Measure the route, the route without each of its deviations, and each deviation alone."""
    route, task, seed = subject.route, subject.task, subject.seed
    parts = deviations(route)
    wanted = {"route": route}
    for number, part in enumerate(parts):
        for name, one in (("without", part.without), ("alone", part.alone)):
            if one is not None:
                wanted[f"{name}-{number}"] = one
    run = context.prepared(task, seed)
    found = context.scored(f"on-{task}", task, seed, wanted)
    scored = found["routes"]
    rows = with_holm(_rows(parts, scored))
    cuts = cut_off_share(scored["standard"], scored["route"])
    whole, count = rows[0], comparisons_in(rows)
    tables = {
        TABLE: Table(
            f"What each deviation of {route} is worth on {task}",
            _columns(),
            rows,
            _notes(seed, whole, _mean(scored["route"]["correct"]), count),
        ),
        "cut_off": Table(
            "How much of the gain is fewer cut-off answers", _cut_columns(), [cuts], (f"{_CUT_NOTE} n = {cuts['n']}.",)
        ),
        "examples": _examples_table(run.splits.test, scored),
    }
    title = f"What is lost without each deviation, 95 % intervals ({context.told([task])}, n = {whole['n']})"
    shown = [(row["deviation"], row) for row in rows if row.get("p") is not None]
    constant = Counter(one.answer for one in run.splits.test).most_common(1)[0][1] / len(run.splits.test)
    headline = (
        f"{route} differs from the standard pass by {format_points(whole['difference'])} points"
        f" ({format_points(whole['low'])} to {format_points(whole['high'])}, n = {whole['n']}): {whole['fixed']} fixed,"
        f" {whole['broken']} broken; {format_points(cuts['by_cut_off'])} of it on answers that were or became cut off."
        f" Always the commonest answer would give {100 * constant:.1f} %."
    )
    if route.is_standard:
        headline = "The route is the standard pass: there is nothing to explain."
    figures = [differences_figure(STUDY, title, shown, route)] if shown else []
    return StudyResult(STUDY, headline, tables, figures, count, {"route": str(route), "commonest_answer": constant})


def _rows(parts: Sequence[Deviation], scored: dict[str, Any]) -> list[dict[str, Any]]:
    """The whole gain, then what is lost without each deviation, and what each gives alone."""
    standard, routed = scored["standard"]["correct"], scored["route"]["correct"]
    row: dict[str, Any] = {"deviation": WHOLE, "accuracy": _mean(standard), "alone": _mean(routed) - _mean(standard)}
    rows = [{**row, **_judged(scored, "standard")}]
    for number, part in enumerate(parts):
        without, alone = scored.get(f"without-{number}"), scored.get(f"alone-{number}")
        remark = "; ".join(text for text in (part.reason, part.remark) if text)
        line: dict[str, Any] = {"number": number + 1, "deviation": part.told, "remark": remark}
        if without is not None:
            line |= {"accuracy": _mean(without["correct"]), **_judged(scored, f"without-{number}")}
            if without["route"] == scored["standard"]["route"]:  # the only deviation: compared above already
                line |= {"p": None, "remark": "it is all that differs"}
        if alone is not None:
            line["alone"] = _mean(alone["correct"]) - _mean(standard)
        rows.append(line)
    return rows


def _judged(scored: dict[str, Any], name: str) -> dict[str, Any]:
    """The route against what is left of it; the same route is compared with nothing."""
    row = difference_row(scored[name]["correct"], scored["route"]["correct"])
    is_same = scored[name]["route"] == scored["route"]["route"]
    return {**row, "left": scored[name]["route"], **({"p": None} if is_same else {})}


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def cut_off_share(standard: dict[str, Any], routed: dict[str, Any]) -> dict[str, Any]:
    """The difference split into examples on which either answer was cut off by a budget, and the others."""
    rows = list(zip(standard["correct"], routed["correct"], standard["cut"], routed["cut"], strict=True))
    n = len(rows)
    return {
        "standard_cut": _mean(standard["cut"]),
        "route_cut": _mean(routed["cut"]),
        "difference": sum(after - before for before, after, _, _ in rows) / n,
        "fewer_cut": sum(after - before for before, after, cut, still in rows if cut and not still) / n,
        "more_cut": sum(after - before for before, after, cut, now in rows if now and not cut) / n,
        "still_cut": sum(after - before for before, after, cut, now in rows if cut and now) / n,
        "by_cut_off": sum(after - before for before, after, cut, now in rows if cut or now) / n,
        "rest": sum(after - before for before, after, cut, now in rows if not cut and not now) / n,
        "n": n,
    }


_CUT_NOTE = (
    "The difference to the standard pass in points of accuracy, by what happened to the answers. A route that only"
    " writes shorter looks like one that reasons better: its gain stands under *was cut off, is not*."
)


def _cut_columns() -> list[Column]:
    return [
        Column("cut off, standard, %", lambda row: format_percentage(row["standard_cut"])),
        Column("cut off, route, %", lambda row: format_percentage(row["route_cut"])),
        Column("difference, points", lambda row: format_points(row["difference"])),
        Column("was cut off, is not", lambda row: format_points(row["fewer_cut"])),
        Column("was not, is cut off", lambda row: format_points(row["more_cut"])),
        Column("both are cut off", lambda row: format_points(row["still_cut"])),
        Column("neither is cut off", lambda row: format_points(row["rest"])),
    ]


def _examples_table(examples: Sequence[Example], scored: dict[str, Any]) -> Table:
    """Which examples the route fixes and breaks, and without which deviation they fall back."""
    standard, routed = scored["standard"]["correct"], scored["route"]["correct"]
    parts = [name for name in scored if name.startswith("without-")]
    rows = []
    for place, example in enumerate(examples):
        if standard[place] == routed[place]:
            continue
        back = [str(int(name.split("-")[1]) + 1) for name in parts if scored[name]["correct"][place] != routed[place]]
        kind = "fixed" if routed[place] else "broken"
        rows.append({"kind": kind, "example": example.id, "question": example.question, "needs": back})
    kept = [row for kind in ("fixed", "broken") for row in [one for one in rows if one["kind"] == kind][:_SHOWN]]
    columns = [
        text_column("", "kind"),
        text_column("example", "example"),
        Column("question", lambda row: row["question"][:120], is_number=False),
        Column("changes back without deviation", lambda row: ", ".join(row["needs"]) or "none alone", is_number=False),
    ]
    note = (
        f"The first {_SHOWN} of each kind; {len(rows)} answers changed from right to wrong or back. Deviations are"
        " numbered as in the study's own table."
    )
    return Table("Examples that the route fixes and breaks", columns, kept, (note,))


def _notes(seed: int, whole: Mapping[str, Any], routed: float, count: int) -> tuple[str, str]:
    return (
        (
            f"Seed {seed}, n = {whole['n']}; the whole route has {format_percentage(routed)} % right. Each"
            " deviation is dropped in turn, the others kept: the difference is what the whole route"
            " has over what is left. *Alone* is the standard pass with this deviation only, against the standard pass."
            " The first line is the whole route against the standard pass. Deviations work together, so the lines need"
            " not add up."
        ),
        comparisons_note(count),
    )


def _columns() -> list[Column]:
    return [
        number_column("no.", "number"),
        text_column("deviation", "deviation"),
        Column("right without it, %", lambda row: format_percentage(row.get("accuracy"))),
        *difference_columns("worth, points"),
        number_column("fixed", "fixed"),
        number_column("broken", "broken"),
        Column("alone, points", lambda row: format_points(row.get("alone"))),
        text_column("what is left", "left", is_code=True),
        text_column("", "remark"),
    ]
