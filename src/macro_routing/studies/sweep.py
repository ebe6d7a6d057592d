"""One hyper-parameter at a time around the study's settings (paper, "Hyperparameter Analysis": β and the elite)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from macro_routing.errors import SettingsError, suggest_name
from macro_routing.report.figure import Figure
from macro_routing.report.formatting import format_number_of
from macro_routing.report.line_chart import AxisLabels, ChartPoint, LineSeries, draw_line_chart
from macro_routing.runs.config import RunConfig
from macro_routing.runs.config_tables import DataSettings, SpaceSettings
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import SELECTED, STANDARD
from macro_routing.studies.context import StudyContext
from macro_routing.studies.paired_comparisons import (
    add_holm_correction,
    estimate_difference_over_seeds,
    is_significant,
    make_corrected_comparison_table,
)
from macro_routing.studies.search_variants import ACCURACY_COLUMN, LAYERS_COLUMN, SearchVariant, SearchVariantRunner
from macro_routing.studies.settings import HyperparameterSweepSettings, Value
from macro_routing.studies.study_result import StudyResult
from macro_routing.studies.tables import Column, Row, difference_columns, make_text_column

STUDY = "sweep"
_NO_SETTING = ("layers", "test", "data_dir", "question", "answer", "choices", "kind")
"""The model's own, or what says where the examples are and which are tested: another value asks something else."""


def find_settings_table_of_hyperparameter(setting: str, config: RunConfig) -> str:
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
        if not isinstance(field.default, tuple)  # a list cannot be swept
    }
    if setting not in known or setting in _NO_SETTING:
        names = sorted(name for name in known if name not in _NO_SETTING)
        raise SettingsError(
            f"{setting} cannot be swept; settings that can: {', '.join(names)}{suggest_name(setting, names)}"
        )
    return known[setting]


def get_base_setting_value(setting: str, config: RunConfig) -> Value:
    """What the study's own settings say."""
    table = find_settings_table_of_hyperparameter(setting, config)
    return getattr(getattr(config, table), setting)  # type: ignore[no-any-return]


def run_hyperparameter_sweep(context: StudyContext, settings: HyperparameterSweepSettings) -> StudyResult:
    """Search with every value, and compare with the default on the same examples."""
    setting, seeds = settings.setting, settings.seeds
    table, default = (
        find_settings_table_of_hyperparameter(setting, context.base),
        get_base_setting_value(setting, context.base),
    )
    searches = SearchVariantRunner(context, settings.task_names, seeds)
    # The default is what is run if the setting is not mentioned: a preset may settle it by the model.
    variants = {
        value: SearchVariant(f"{setting}={value}", {} if value == default else {table: {setting: value}})
        for value in _sort_distinct_values([*settings.values, default])
    }
    by_name = searches.run_variants(list(variants.values()))
    runs = {value: by_name[variant.name] for value, variant in variants.items()}
    chosen = SELECTED[context.base.method]
    rows: list[dict[str, Any]] = []
    for value, mine in runs.items():
        row = searches.summarize_variant(str(value), mine, chosen, None if value == default else runs[default], chosen)
        gain = estimate_difference_over_seeds(searches.pair_outcomes_by_seed(mine, STANDARD, mine, chosen))
        bounds = {"mean": gain.mean, "low": gain.low, "high": gain.high}
        rows.append({**row, "value": value, "is_default": value == default, "gain": bounds})
    rows = add_holm_correction(rows)
    standard = searches.summarize_standard_pass(runs[default])
    different = [row["variant"] for row in rows if is_significant(row)]
    named = f" ({setting} = {', '.join(different)})" if different else ""
    headline = (
        f"Over {format_number_of(len(seeds), 'seed')}, values of {setting} that differ in accuracy from the default"
        f" {default}: {len(different)} of {len(rows) - 1}{named}."
    )
    title = f"Accuracy by {setting} ({context.describe_model_and_tasks(settings.task_names)})"
    figure = _draw_hyperparameter_sweep(title, setting, chosen, rows, standard["accuracy"])
    note = searches.describe_averages(runs[default])
    columns = [make_text_column(setting, "variant"), *_COLUMNS]
    result_table = make_corrected_comparison_table(f"Sweep of {setting}", columns, [*rows, standard], note)
    return StudyResult(STUDY, headline, result_table, [figure])


def _sort_distinct_values(values: Sequence[Value]) -> list[Value]:
    different = list(dict.fromkeys(values))
    return sorted(different) if all(isinstance(value, int | float) for value in different) else different


_COLUMNS = [
    ACCURACY_COLUMN,
    *difference_columns("difference to the default, points"),
    LAYERS_COLUMN,
    Column("", lambda row: "default" if row.get("is_default") else "", is_number=False),
]


def _draw_hyperparameter_sweep(title: str, setting: str, method: str, rows: Sequence[Row], standard: float) -> Figure:
    """Accuracy by value; bars are of the gain over the standard pass, so they exclude its own uncertainty."""
    points, names = [], []
    for index, row in enumerate(rows):
        low, high = (100 * (standard + row["gain"][end]) for end in ("low", "high"))
        points.append(ChartPoint(index, 100 * row["accuracy"], low, high))
        names.append((float(index), row["variant"] + (" (default)" if row["is_default"] else "")))
    return draw_line_chart(
        STUDY,
        title,
        [LineSeries(f"{method}; bars: 95 % interval of the gain over the standard pass", points, has_bars=True)],
        AxisLabels(setting, names=names),
        AxisLabels("correct on the test sets, %"),
        level=(100 * standard, "standard pass"),
    )
