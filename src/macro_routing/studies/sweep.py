"""One hyper-parameter at a time around the study's settings (paper, "Hyperparameter Analysis": β and the elite)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from macro_routing.errors import SettingsError, suggestion
from macro_routing.report.formatting import format_mean_and_deviation
from macro_routing.report.line_chart import Axis, Line, Point, lines_figure
from macro_routing.runs.config import DataSettings, RunConfig, SpaceSettings
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import SELECTED, STANDARD
from macro_routing.studies.columns import comparisons_note, difference_columns, text_column
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import comparisons_in, is_significant, over_seeds, with_holm
from macro_routing.studies.search_variants import (
    Cells,
    Variant,
    check_variants,
    run_variant,
    searches_note,
    standard_row,
    variant_row,
)
from macro_routing.studies.settings import BlockSweepSettings, Value
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Table

STUDY = "sweep"
_NO_SETTING = ("layers", "test", "data_dir", "question", "answer", "choices", "kind")
"""The model's own, or what says where the examples are and which are tested: another value asks something else."""


def place_of(setting: str, config: RunConfig) -> str:
    """The table of a run's settings that a hyper-parameter is in."""
    tables = {
        "search": METHODS[config.method].settings,
        "space": SpaceSettings,
        "data": DataSettings,
    }
    known = {
        field.name: table
        for table, kind in reversed(tables.items())
        for field in dataclasses.fields(kind)
        if not isinstance(field.default, tuple)  # a list of values is no value
    }
    if setting not in known or setting in _NO_SETTING:
        names = sorted(name for name in known if name not in _NO_SETTING)
        raise SettingsError(f"{setting} is no setting to sweep; known: {', '.join(names)}{suggestion(setting, names)}")
    return known[setting]


def default_of(setting: str, config: RunConfig) -> Value:
    """What the study's own settings say."""
    table = place_of(setting, config)
    return getattr(getattr(config, table), setting)  # type: ignore[no-any-return]


def run_sweep(context: StudyContext, settings: BlockSweepSettings) -> StudyResult:
    """Search with every value, and compare with the default on the same examples."""
    tasks, seeds, setting, values = settings.task_names, settings.seeds, settings.setting, settings.values
    table, default = place_of(setting, context.base), default_of(setting, context.base)
    ordered = _ordered([*values, default])
    # The default is what is run without a word about the setting: a preset may settle it by the model.
    variants = {
        value: Variant(f"{setting}={value}", {} if value == default else {table: {setting: value}}) for value in ordered
    }
    check_variants(context, list(variants.values()), tasks, seeds[0])
    found = {value: run_variant(context, variant, tasks, seeds) for value, variant in variants.items()}
    chosen = SELECTED[context.base.method]
    rows: list[dict[str, Any]] = []
    for value, cells in found.items():
        compared = None if value == default else found[default]
        row = variant_row(str(value), cells, chosen, compared, chosen)
        rows.append({**row, "value": value, "is_default": value == default, "gain": _gain(cells, chosen)})
    rows = with_holm(rows)
    reference = standard_row(found[default])
    count = comparisons_in(rows)
    different = [row["variant"] for row in rows if is_significant(row)]
    named = ", ".join(different) or "none"
    headline = (
        f"In these searches ({len(seeds)} seed(s)) the routes of {len(different)} of {count} values of {setting} differ"
        f" in accuracy from those of the default {default}: {named}."
    )
    notes = (searches_note(tasks, seeds, found[default]), comparisons_note(count))
    return StudyResult(
        STUDY,
        headline,
        {TABLE: Table(f"Sweep of {setting}", _columns(setting), [*rows, reference], notes)},
        [_figure(f"Accuracy by {setting} ({context.told(tasks)})", setting, chosen, rows, reference["accuracy"])],
        count,
    )


def _ordered(values: Sequence[Value]) -> list[Value]:
    different = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) for value in different):
        return sorted(different)
    return different


def _gain(cells: Cells, chosen: str) -> dict[str, float]:
    """Against the standard pass on the same examples, for the picture's bars."""
    tasks = list(dict.fromkeys(task for task, _ in cells))
    pairs = [
        [(arm.right[STANDARD], arm.right[chosen]) for (one, _), arm in cells.items() if one == task] for task in tasks
    ]
    found = over_seeds(pairs)
    return {"mean": found.mean, "low": found.low, "high": found.high}


def _columns(setting: str) -> list[Column]:
    return [
        text_column(setting, "variant"),
        Column("right, %", lambda row: format_mean_and_deviation(row["accuracy"], row["spread"])),
        *difference_columns("difference to the default, points"),
        Column("layers run", lambda row: f"{row['layers']:.1f}"),
        Column("", lambda row: "default" if row.get("is_default") else "", is_number=False),
    ]


def _figure(title: str, setting: str, method: str, rows: Sequence[dict[str, Any]], standard: float) -> Any:
    """Accuracy by value; the bars are of the gain over the standard pass, so that they do not hold its uncertainty."""
    points, names = [], []
    for place, row in enumerate(rows):
        low, high = (100 * (standard + row["gain"][end]) for end in ("low", "high"))
        points.append(Point(place, 100 * row["accuracy"], low, high))
        names.append((float(place), row["variant"] + (" (default)" if row["is_default"] else "")))
    return lines_figure(
        STUDY,
        title,
        [Line(f"{method}; bars: 95 % interval of the gain over the standard pass", points, has_bars=True)],
        Axis(setting, names=names),
        Axis("right on the test sets, %"),
        level=(100 * standard, "standard pass"),
    )
