"""Two things compared on the same examples, once or over seeds; and all comparisons of a study corrected together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from macro_routing.evaluation.clustered_statistics import PairedDifference, estimate_paired_difference
from macro_routing.evaluation.statistics import compare_paired, holm_correction
from macro_routing.report.figure import Figure
from macro_routing.report.interval_chart import GAIN, LOSS, OPEN, PLAIN, IntervalRow, intervals_figure
from macro_routing.runs.result import LEVEL

_MEANINGS = {
    GAIN: "a gain (p < 0.05, corrected)",
    LOSS: "a loss (p < 0.05, corrected)",
    OPEN: "no evidence of a gain or a loss",
    PLAIN: "not compared",
}
Right = Mapping[str, bool]
"""By example: whether the answer was right."""


def difference_row(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """Second minus first on the same examples: the difference, its interval and an exact McNemar test."""
    found = compare_paired(first, second)
    return {
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "p": found.p_value,
        "fixed": found.fixed,
        "broken": found.broken,
        "n": found.n,
    }


def over_seeds(pairs: Sequence[Sequence[tuple[Right, Right]]]) -> PairedDifference:
    """By task and seed (what is compared with, what is compared): the mean difference over tasks."""
    tasks = []
    for seeds in pairs:
        found: dict[str, list[float]] = {}
        for first, second in seeds:
            for example, right in second.items():
                found.setdefault(example, []).append(float(right) - float(first[example]))
        tasks.append(found)
    return estimate_paired_difference(tasks)


def seeds_row(pairs: Sequence[Sequence[tuple[Right, Right]]]) -> dict[str, Any]:
    """The same as part of a table's row."""
    values = dataclasses.asdict(over_seeds(pairs))
    return {"difference": values["mean"], "p": values["p_value"], **{key: values[key] for key in ("low", "high", "n")}}


def with_holm(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with ``p_holm``, corrected over all of them that have a ``p``."""
    places = [place for place, row in enumerate(rows) if row.get("p") is not None]
    corrected = dict(zip(places, holm_correction([rows[place]["p"] for place in places]), strict=True))
    return [{**row, "p_holm": corrected.get(place)} for place, row in enumerate(rows)]


def is_significant(row: Mapping[str, Any]) -> bool:
    """Whether a corrected row differs beyond luck; one that compares nothing does not, one with p = 0 does."""
    p = row.get("p_holm")
    return p is not None and bool(p < LEVEL)


def gains_in(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Corrected rows that are better beyond luck."""
    return [row for row in rows if is_significant(row) and row["difference"] > 0]


def losses_in(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Corrected rows that are worse beyond luck."""
    return [row for row in rows if is_significant(row) and row["difference"] < 0]


def comparisons_in(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many rows compare something."""
    return sum(row.get("p") is not None for row in rows)


def differences_figure(
    name: str, title: str, rows: Sequence[tuple[str, Mapping[str, Any]]], route: object = None
) -> Figure:
    """Named rows' differences in points with their intervals; colours follow the corrected p-value."""
    shown = [_interval(told, row) for told, row in rows]
    unit = "points of accuracy" if route is None else f"points of accuracy: {short_route(route, 80)}"
    return judged_figure(name, title, unit, shown)


def judged_figure(name: str, title: str, unit: str, shown: Sequence[IntervalRow]) -> Figure:
    """Differences with their intervals; the colours are judgements by corrected p-values."""
    figure = intervals_figure(name, title, unit, shown, 0.0)
    kinds = [kind for kind in _MEANINGS if any(row.kind == kind for row in shown)]
    legend = tuple((shape, _MEANINGS[kind]) for (shape, _), kind in zip(figure.legend, kinds, strict=True))
    return replace(figure, legend=legend)


def _interval(name: str, row: Mapping[str, Any]) -> IntervalRow:
    kind = GAIN if gains_in([row]) else LOSS if losses_in([row]) else PLAIN if row.get("p_holm") is None else OPEN
    return IntervalRow(name, 100 * row["low"], 100 * row["difference"], 100 * row["high"], kind)


def short_route(route: object, most: int = 56) -> str:
    """A route for a title: its beginning where it is long."""
    text = str(route)
    return text if len(text) <= most else f"{text[: most - 1]}…"
