"""Two things compared on the same examples, once or over seeds; all comparisons of a study are corrected together."""

from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.evaluation.statistics import (
    TaskMeanDifference,
    compare_paired,
    estimate_paired_difference,
    holm_correction,
)
from macro_routing.report.figure import Figure
from macro_routing.report.interval_chart import GAIN, LOSS, OPEN, PLAIN, IntervalRow, draw_intervals
from macro_routing.runs.result import LEVEL
from macro_routing.studies.tables import Column, Row, Table

CORRECTED_MEANINGS = {
    GAIN: "a gain (p < 0.05, corrected)",
    LOSS: "a loss (p < 0.05, corrected)",
    OPEN: "no evidence of a gain or a loss",
    PLAIN: "not compared",
}
CorrectByExample = Mapping[str, bool]
"""By example: whether the answer was correct."""
SeedPairs = Sequence[tuple[CorrectByExample, CorrectByExample]]
"""By seed: baseline and what is compared with it."""


def compute_paired_score_difference(baseline: Mapping[str, Any], compared: Mapping[str, Any]) -> dict[str, Any]:
    """The difference of two routes' scores on the same examples, its interval and an exact McNemar test.

    It is part of a table's row. A route cannot differ from itself: then there is no p-value.
    """
    is_same_route = baseline["route"] == compared["route"]
    paired = compare_paired(baseline["correct"], compared["correct"], is_same_route=is_same_route)
    values = {name: getattr(paired, name) for name in ("difference", "low", "high", "fixed", "broken", "n")}
    return {**values, "p": None if is_same_route else paired.p_value}


def estimate_difference_over_seeds(tasks: Sequence[SeedPairs]) -> TaskMeanDifference:
    """The mean difference over tasks; seeds that share an example form one cluster."""
    clusters = []
    for seeds in tasks:
        differences: dict[str, list[float]] = {}
        for baseline, compared in seeds:
            for example, correct in compared.items():
                differences.setdefault(example, []).append(float(correct) - float(baseline[example]))
        clusters.append(differences)
    return estimate_paired_difference(clusters)


def make_mean_difference_cells(tasks: Sequence[SeedPairs]) -> dict[str, Any]:
    """The mean difference over tasks as part of a table's row."""
    paired = estimate_difference_over_seeds(tasks)
    return {"difference": paired.mean, "p": paired.p_value, "low": paired.low, "high": paired.high, "n": paired.n}


def add_holm_correction(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows with ``p_holm``, corrected over all rows that have a ``p``."""
    compared = [index for index, row in enumerate(rows) if row.get("p") is not None]
    corrected = dict(zip(compared, holm_correction([rows[index]["p"] for index in compared]), strict=True))
    return [{**row, "p_holm": corrected.get(index)} for index, row in enumerate(rows)]


def is_significant(row: Row) -> bool:
    """Whether a corrected row is significant; one that compares nothing is not, one with p = 0 is."""
    p = row.get("p_holm")
    return p is not None and bool(p < LEVEL)


def select_significant_gains(rows: Sequence[Row]) -> list[Row]:
    """Corrected rows that are significantly better."""
    return [row for row in rows if is_significant(row) and row["difference"] > 0]


def select_significantly_worse_rows(rows: Sequence[Row]) -> list[Row]:
    """Corrected rows that are significantly worse."""
    return [row for row in rows if is_significant(row) and row["difference"] < 0]


def make_corrected_comparison_table(title: str, columns: Sequence[Column], rows: Sequence[Row], *notes: str) -> Table:
    """A table of corrected rows; its last note says how many comparisons were made."""
    count = sum(row.get("p") is not None for row in rows)
    return Table(title, columns, rows, (*notes, describe_comparison_count(count)))


def describe_comparison_count(count: int) -> str:
    """How many comparisons were made, and what that means for a p-value."""
    if count == 0:
        return "Nothing is compared in this table."
    if count == 1:
        return "One comparison was made."
    return f"{count} comparisons were made; p, Holm is corrected for all of them, p is not."


def draw_differences(name: str, title: str, rows: Sequence[tuple[str, Row]], route: object = None) -> Figure:
    """Named rows' differences in points with their intervals; colours follow the corrected p-value."""
    unit = "points of accuracy" if route is None else f"points of accuracy: {truncate_route_text(route, 80)}"
    return draw_intervals(
        name, title, unit, [_make_interval_row(label, row) for label, row in rows], 0.0, CORRECTED_MEANINGS
    )


def _make_interval_row(name: str, row: Row) -> IntervalRow:
    kind = PLAIN if row.get("p_holm") is None else OPEN
    if is_significant(row) and row["difference"]:
        kind = GAIN if row["difference"] > 0 else LOSS
    return IntervalRow(name, 100 * row["low"], 100 * row["difference"], 100 * row["high"], kind)


def truncate_route_text(route: object, maximum: int = 56) -> str:
    """A route for a title: its beginning where it is long."""
    text = str(route)
    return text if len(text) <= maximum else f"{text[: maximum - 1]}…"
