"""The run's result: the chosen route against the standard pass, and all variants on the test set."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from macro_routing.evaluation.statistics import PairedComparison, compare_paired, wilson_interval
from macro_routing.report.formatting import (
    NO_VALUE,
    format_count,
    format_detectable_gain,
    format_percent,
    format_percent_interval,
    format_points,
    format_points_interval,
)
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale
from macro_routing.report.tables import ReportTable, TableCell
from macro_routing.routes.route import Route
from macro_routing.runs.result import NO_DECODING, STANDARD, TOP_1, TOP_1_ANCHORED, RouteTestResult, RunResult

_MEANINGS = {
    TOP_1: "most probable in the final policy",
    TOP_1_ANCHORED: "first of the final set, where the standard pass was inserted",
    NO_DECODING: "best draw, nothing decoded",
    STANDARD: "every layer once, in order",
}
_NUMBER_COLUMNS = ("layers", "accuracy", "against standard", "truncated", "tokens")
_CHOICE_NOTE = "The first row was chosen before the test set was looked at."
_VARIANTS_NOTE = (
    "The rows in between compare ways of choosing: top-1 takes the most probable program without validating, no Vit. "
    "the best draw without decoding; to pick one of them for its accuracy here would be choosing on test data."
)
_LIKELIHOOD_NOTE = "Choices were compared by likelihood: no text was generated, so nothing was truncated."


def render_result(
    result: RunResult, answers: Mapping[str, Any] | None, *, generates: bool, seed: int, chosen_by: str = ""
) -> Markup:
    """The paired comparison that the verdict rests on, and every variant."""
    differences = {} if answers is None else _compare_with_standard(answers, result, seed)
    return render_template(
        "result.html",
        paired=result.comparison,
        detectable=format_detectable_gain(result.detectable),
        p_value=f"{result.comparison.p_value:.2g}",
        table=_make_tested_routes_table(result, differences, chosen_by, generates=generates),
        notes=[
            _CHOICE_NOTE,
            *([_VARIANTS_NOTE] if len(result.variants) > 2 else []),
            *([] if generates else [_LIKELIHOOD_NOTE]),
        ],
    )


def _compare_with_standard(answers: Mapping[str, Any], result: RunResult, seed: int) -> dict[str, PairedComparison]:
    """Every route that met the test set, example by example against the standard pass."""
    correct = {route: [outcome["correct"] for outcome in outcomes] for route, outcomes in answers["routes"].items()}
    standard = str(Route.standard(result.layers))
    return {
        route: compare_paired(correct[standard], values, seed=seed, is_same_route=route == standard)
        for route, values in correct.items()
    }


def _make_tested_routes_table(
    result: RunResult, differences: Mapping[str, PairedComparison], chosen_by: str, *, generates: bool
) -> ReportTable:
    bounds = [wilson_interval(variant.accuracy, variant.n) for variant in result.variants]
    scale = Scale(min(low for low, _ in bounds), max(high for _, high in bounds), 5, 115)
    meanings = [f"chosen by {chosen_by}" if chosen_by else ""]
    meanings += [_MEANINGS.get(variant.name, "") for variant in result.variants[1:]]
    rows = [
        _make_route_test_row(variant, meaning, scale, differences.get(variant.route))
        for variant, meaning in zip(result.variants, meanings, strict=True)
    ]
    # Columns that would be empty are left out: a phone is narrow.
    columns = [name for name in rows[0] if generates or name not in {"truncated", "tokens"}]
    return ReportTable(columns, [[row[name] for name in columns] for row in rows], _NUMBER_COLUMNS, highlighted=0)


def _make_route_test_row(
    variant: RouteTestResult, meaning: str, scale: Scale, difference: PairedComparison | None
) -> dict[str, str | TableCell]:
    low, high = wilson_interval(variant.accuracy, variant.n)
    return {
        "variant": TableCell(variant.name, meaning, kind="name"),
        "accuracy": TableCell(
            format_percent(variant.accuracy), f"{format_count(variant.correct)} of {format_count(variant.n)}"
        ),
        "against standard": NO_VALUE
        if difference is None or variant.name == STANDARD
        else make_difference_cell(difference),
        "95 % interval": TableCell(
            render_template("interval_mark.svg", x=scale, low=low, middle=variant.accuracy, high=high),
            format_percent_interval(low, high),
        ),
        "layers": str(variant.length),
        "truncated": format_percent(variant.truncated_share),
        "tokens": f"{variant.tokens:.1f}",
        "route": TableCell(variant.route, kind="route"),
    }


def make_difference_cell(row: Any) -> TableCell:
    """A difference in points with its interval below it."""
    return TableCell(format_points(row.difference), format_points_interval(row.low, row.high))
