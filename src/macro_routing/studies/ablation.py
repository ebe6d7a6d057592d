"""What the parts of MACRO's state are worth, and what decoding and validation add (paper, "State-Space Ablation")."""

from collections.abc import Sequence
from typing import Any

from macro_routing.report.formatting import format_number_of, format_points, format_points_interval
from macro_routing.runs.result import NO_DECODING, SELECTED, TOP_1
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    draw_differences,
    make_corrected_comparison_table,
    select_significantly_worse_rows,
)
from macro_routing.studies.search_variants import ACCURACY_COLUMN, LAYERS_COLUMN, SearchVariant, SearchVariantRunner
from macro_routing.studies.settings import AblationSettings
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import Column, Row, difference_columns, make_text_column

STUDY = "ablation"
_FACTORS = {"phase": "budget phase", "displacement": "displacement", "operator": "operator context"}
_ABLATION_NAMES = {"phase": "no phase", "displacement": "no displacement", "operator": "no operator context"}
FULL_STATE = "full state"
_CHOICES = {TOP_1: "top-1, without validation", NO_DECODING: "full state, best draw (no Vit.)"}


def run_state_factor_ablation(context: StudyContext, settings: AblationSettings) -> StudyResult:
    """Run the search with each factor removed, and compare with the full state on the same examples."""
    searches = SearchVariantRunner(context, settings.task_names, settings.seeds)
    ablations = [SearchVariant(name, {"space": {factor: False}}) for factor, name in _ABLATION_NAMES.items()]
    runs = searches.run_variants([SearchVariant(FULL_STATE), *ablations])
    chosen, full = SELECTED[context.base.method], runs[FULL_STATE]
    all_factors = dict.fromkeys(_FACTORS, True)
    rows: list[dict[str, Any]] = [{**searches.summarize_variant(FULL_STATE, full, chosen), **all_factors}]
    for factor, name in _ABLATION_NAMES.items():
        row = searches.summarize_variant(name, runs[name], chosen, baseline=full, baseline_choice=chosen)
        rows.append({**row, **all_factors, factor: False})
    for choice, name in _CHOICES.items():
        if all(choice in run.right for run in full.values()):
            row = searches.summarize_variant(name, full, choice, baseline=full, baseline_choice=chosen)
            rows.append({**row, **all_factors})
    rows = add_holm_correction(rows)
    compared = [row for row in rows if row["p_holm"] is not None]
    standard = {**searches.summarize_standard_pass(full), **dict.fromkeys(_FACTORS)}
    tasks = context.describe_model_and_tasks(settings.task_names)
    title = f"State ablation ({tasks}): difference to the full state, 95 % intervals"
    figure = draw_differences(STUDY, title, [(row["variant"], row) for row in compared])
    table = make_corrected_comparison_table(
        "State ablation", _COLUMNS, [*rows, standard], searches.describe_averages(full)
    )
    return StudyResult(STUDY, _summarize_worse_search_variants(compared, len(settings.seeds)), table, [figure])


def _summarize_worse_search_variants(compared: Sequence[Row], seeds: int) -> str:
    worse = [row["variant"] for row in select_significantly_worse_rows(compared)]
    worst = min(compared, key=lambda row: row["difference"])
    named = f" ({', '.join(worse)})" if worse else ""
    return (
        f"Over {format_number_of(seeds, 'seed')}, variants that are worse than the full state: {len(worse)} of"
        f" {len(compared)}{named}. The lowest is {worst['variant']},"
        f" {format_points(worst['difference'])} points ({format_points_interval(worst['low'], worst['high'])})."
    )


def _make_ablation_checkmark_column(factor: str) -> Column:
    return Column(_FACTORS[factor], lambda row: {True: "✓", False: "–"}.get(row[factor], ""), is_number=False)


_COLUMNS = [
    make_text_column("state", "variant"),
    *map(_make_ablation_checkmark_column, _FACTORS),
    ACCURACY_COLUMN,
    *difference_columns("difference to the full state, points"),
    LAYERS_COLUMN,
]
