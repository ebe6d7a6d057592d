"""What the parts of MACRO's state are worth, and what decoding and validation add (paper, "State-Space Ablation")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from macro_routing.report.formatting import format_mean_and_deviation, format_points, format_points_interval
from macro_routing.runs.result import NO_DECODING, SELECTED, TOP_1
from macro_routing.studies.columns import comparisons_note, difference_columns, text_column
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import comparisons_in, differences_figure, losses_in, with_holm
from macro_routing.studies.search_variants import (
    Variant,
    check_variants,
    run_variant,
    searches_note,
    standard_row,
    variant_row,
)
from macro_routing.studies.settings import AblationSettings
from macro_routing.studies.study_result import TABLE, StudyResult
from macro_routing.studies.tables import Column, Row, Table

STUDY = "ablation"
_FACTORS = {"phase": "budget phase", "displacement": "displacement", "operator": "operator context"}
_NAMES = {"phase": "no phase", "displacement": "no displacement", "operator": "no operator context"}
FULL = "full state"
_CHOICES = {TOP_1: "full state, top-1 (no validation)", NO_DECODING: "full state, best draw (no Vit.)"}


def variants() -> list[Variant]:
    """The whole state, then one factor removed at a time."""
    kept = dict.fromkeys(_FACTORS, True)
    return [
        Variant(FULL, facts=kept),
        *(Variant(_NAMES[name], {"space": {name: False}}, {**kept, name: False}) for name in _FACTORS),
    ]


def run_ablation(context: StudyContext, settings: AblationSettings) -> StudyResult:
    """Run the search with each factor removed, and compare with the whole state on the same examples."""
    tasks, seeds = settings.task_names, settings.seeds
    check_variants(context, variants(), tasks, seeds[0])
    cells = {variant.name: run_variant(context, variant, tasks, seeds) for variant in variants()}
    chosen, full = SELECTED[context.base.method], cells[FULL]
    rows: list[dict[str, Any]] = []
    for variant in variants():
        compared = None if variant.name == FULL else full
        rows.append({**variant_row(variant.name, cells[variant.name], chosen, compared, chosen), **variant.facts})
    for choice, name in _CHOICES.items():
        if all(choice in arm.right for arm in full.values()):
            rows.append({**variant_row(name, full, choice, full, chosen), **dict.fromkeys(_FACTORS, True)})
    rows = with_holm(rows)
    reference = {**standard_row(full), **dict.fromkeys(_FACTORS)}
    count = comparisons_in(rows)
    drops = [(row["variant"], row) for row in rows if row.get("p") is not None]
    title = f"State ablation ({context.told(tasks)}): difference to the full state, 95 % intervals"
    return StudyResult(
        STUDY,
        _headline(rows, seeds),
        {
            TABLE: Table(
                "State ablation",
                _columns(),
                [*rows, reference],
                (searches_note(tasks, seeds, full), comparisons_note(count)),
            )
        },
        [differences_figure(STUDY, title, drops)],
        count,
    )


def _headline(rows: Sequence[Row], seeds: Sequence[int]) -> str:
    compared = [row for row in rows if row["p_holm"] is not None]
    lost = [row["variant"] for row in losses_in(compared)]
    worst = min(compared, key=lambda row: row["difference"])
    return (
        f"In these searches ({len(seeds)} seed(s)) the routes of {len(lost)} of {len(compared)} variants are worse than"
        f" the full state's: {', '.join(lost) or 'none'}; the lowest is {worst['variant']},"
        f" {format_points(worst['difference'])} points ({format_points_interval(worst['low'], worst['high'])})."
    )


def _columns() -> list[Column]:
    def has(name: str) -> Column:
        return Column(_FACTORS[name], lambda row: {True: "✓", False: "–"}.get(row[name], ""), is_number=False)

    return [
        text_column("state", "variant"),
        *(has(name) for name in _FACTORS),
        Column("right, %", _accuracy),
        *difference_columns("difference to the full state, points"),
        Column("layers run", lambda row: f"{row['layers']:.1f}"),
    ]


def _accuracy(row: Row) -> str:
    return format_mean_and_deviation(row["accuracy"], row["spread"])
