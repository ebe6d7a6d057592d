"""What the run came to: the variants on the test set, and the chosen route against the standard pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from macro_routing.evaluation.statistics import PairedComparison, compare_paired
from macro_routing.report.formatting import (
    NO_VALUE,
    format_count,
    format_detectable_gain,
    format_percent,
    format_percent_interval,
    format_points,
)
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale
from macro_routing.report.tables import route_text, table, tile
from macro_routing.routes.route import Route
from macro_routing.runs.result import NO_DECODING, SELECTED, STANDARD, TOP_1, RunResult, Variant
from macro_routing.runs.round_report import wilson_interval

_MEANINGS = {
    **dict.fromkeys(SELECTED.values(), "chosen by validation"),
    TOP_1: "most probable in the final policy",
    NO_DECODING: "best draw, nothing decoded",
    STANDARD: "every layer once, in order",
}
_COLUMNS = ("variant", "accuracy", "95 % interval", "against standard", "layers", "cut off", "tokens", "route")
_NUMBERS = ("layers", "accuracy", "against standard", "cut off", "tokens")

_CHOSEN_BEFORE = (
    "Only the first row was chosen before the test set was looked at. The others compare ways of choosing: top-1 takes "
    "the most probable program without validating, no Vit. the best draw without decoding; "
    "to pick one of them for its accuracy here would be choosing on test data."
)
_NOTHING_WRITTEN = "Choices were compared by likelihood: nothing was written, so nothing was cut off."


def comparison_tiles(result: RunResult) -> Markup:
    """The paired comparison that the verdict rests on."""
    one = result.comparison
    low, high = format_points(one.low), format_points(one.high)
    return joined(
        element(
            "div",
            tile(
                format_points(one.difference),
                f"points: {format_percent(one.baseline)} → {format_percent(one.routed)}",
            ),
            tile(f"{low} to {high}", "95 % interval of the difference"),
            tile(f"{one.p_value:.2g}", "p, exact McNemar test"),
            tile(str(one.fixed), "fixed: only the route is right"),
            tile(str(one.broken), "broken: only the standard pass is right"),
            tile(format_detectable_gain(result.detectable), "smallest detectable gain"),
            class_="tiles",
        ),
        element(
            "p",
            f"Both on the same {format_count(one.n)} test examples, which were looked at once, after the choice. "
            "The smallest detectable gain is one that as many examples show in four of five cases.",
            class_="note",
        ),
    )


def variants_table(result: RunResult, *, writes: bool, differences: Mapping[str, PairedComparison]) -> Markup:
    """All variants on the test set; ``differences`` are those of their routes to the standard pass."""
    bounds = [wilson_interval(one.accuracy, one.n) for one in result.variants]
    scale = Scale(min(low for low, _ in bounds), max(high for _, high in bounds), 5, 115)
    # Columns that would hold nothing are left out: a phone is narrow.
    columns = [name for name in _COLUMNS if writes or name not in {"cut off", "tokens"}]
    rows = [_row(one, scale, differences.get(one.route)) for one in result.variants]
    notes = [_CHOSEN_BEFORE] if writes else [_CHOSEN_BEFORE, _NOTHING_WRITTEN]
    return joined(
        table(columns, [[row[name] for name in columns] for row in rows], numbers=_NUMBERS, chosen=0),
        *[element("p", note, class_="note") for note in notes],
    )


def differences_to_standard(answers: Mapping[str, Any], result: RunResult, seed: int) -> dict[str, PairedComparison]:
    """Every route that met the test set, example by example against the standard pass."""
    right = {route: [one["correct"] for one in outcomes] for route, outcomes in answers["routes"].items()}
    standard = right[str(Route.standard(result.layers))]
    return {route: compare_paired(standard, correct, seed=seed) for route, correct in right.items()}


def _row(one: Variant, scale: Scale, difference: PairedComparison | None) -> dict[str, str]:
    low, high = wilson_interval(one.accuracy, one.n)
    right = f"{format_count(one.correct)} of {format_count(one.n)}"
    is_standard = one.name == STANDARD
    return {
        "variant": element("div", element("b", one.name), element("small", _MEANINGS.get(one.name, "")), class_="name"),
        "accuracy": joined(format_percent(one.accuracy), element("small", right)),
        "95 % interval": joined(
            _interval_mark(scale, low, one.accuracy, high), element("small", format_percent_interval(low, high))
        ),
        "against standard": NO_VALUE if difference is None or is_standard else _against(difference),
        "layers": str(one.length),
        "cut off": format_percent(one.cut_off),
        "tokens": f"{one.tokens:.1f}",
        "route": route_text(one.route),
    }


def _against(one: PairedComparison) -> Markup:
    bounds = f"{format_points(one.low)} to {format_points(one.high)}"
    return joined(format_points(one.difference), element("small", bounds))


def _interval_mark(scale: Scale, low: float, middle: float, high: float) -> Markup:
    """An interval beside those of the other rows."""
    line = element("line", x1=scale(low), x2=scale(high), y1=10, y2=10, class_="reference")
    dot = element("circle", cx=scale(middle), cy=10, r=4.5, class_="best-point")
    return element("svg", line, dot, width=120, height=20, aria_hidden="true")
