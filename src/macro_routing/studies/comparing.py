"""Two things compared on the same examples, once or over seeds; and all comparisons of a study corrected together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.evaluation.clustered import PairedDifference, paired_difference
from macro_routing.evaluation.statistics import compare, holm
from macro_routing.report.intervals import GAIN, LOSS, OPEN, IntervalRow
from macro_routing.runs.result import LEVEL

Right = Mapping[str, bool]
"""By example: whether the answer was right."""


def difference_row(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """Second minus first on the same examples: the difference, its interval and an exact McNemar test."""
    found = compare(first, second)
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
    return paired_difference(tasks)


def seeds_row(pairs: Sequence[Sequence[tuple[Right, Right]]]) -> dict[str, Any]:
    """The same as part of a table's row."""
    values = dataclasses.asdict(over_seeds(pairs))
    return {"difference": values["mean"], "p": values["p_value"], **{key: values[key] for key in ("low", "high", "n")}}


def with_holm(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with ``p_holm``, corrected over all of them that have a ``p``."""
    places = [place for place, row in enumerate(rows) if row.get("p") is not None]
    corrected = dict(zip(places, holm([rows[place]["p"] for place in places]), strict=True))
    return [{**row, "p_holm": corrected.get(place)} for place, row in enumerate(rows)]


def comparisons_in(rows: Sequence[Mapping[str, Any]]) -> int:
    """How many rows compare something."""
    return sum(row.get("p") is not None for row in rows)


def interval_row(name: str, row: Mapping[str, Any]) -> IntervalRow:
    """A row's difference for a picture, in points; its colour follows the corrected p-value."""
    p = row.get("p_holm", row["p"])
    kind = OPEN if p >= LEVEL or row["difference"] == 0 else GAIN if row["difference"] > 0 else LOSS
    return IntervalRow(name, 100 * row["low"], 100 * row["difference"], 100 * row["high"], kind)
