"""What the run came to: the variants on the test set, and the chosen route against the standard pass."""

from __future__ import annotations

from macro_routing.report import figures
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale
from macro_routing.report.tables import route_text, table, tile
from macro_routing.runs.outcome_report import wilson_interval
from macro_routing.runs.result import NO_DECODING, SELECTED, STANDARD, TOP_1, RunResult, Variant

_MEANINGS = {
    **dict.fromkeys(SELECTED.values(), "chosen by validation"),
    TOP_1: "most probable in the final policy",
    NO_DECODING: "best draw, nothing decoded",
    STANDARD: "every layer once, in order",
}
_COLUMNS = ("variant", "accuracy", "95 % interval", "right", "length", "cut off", "tokens", "route")
_NUMBERS = ("length", "right", "accuracy", "cut off", "tokens")

_CHOSEN_BEFORE = (
    "Only the first row was chosen before the test set was looked at. The others compare ways of choosing; "
    "to pick one of them for its accuracy here would be choosing on test data."
)
_NOTHING_WRITTEN = "Choices were compared by likelihood: nothing was written, so nothing was cut off."


def comparison_tiles(result: RunResult) -> Markup:
    """The paired comparison that the verdict rests on."""
    one = result.comparison
    low, high = figures.points(one.low), figures.points(one.high)
    return joined(
        element(
            "div",
            tile(
                figures.points(one.difference),
                f"points: {figures.percent(one.baseline)} → {figures.percent(one.routed)}",
            ),
            tile(f"{low} to {high}", "95 % interval of the difference"),
            tile(f"{one.p_value:.2g}", "p, exact McNemar test"),
            tile(str(one.fixed), "fixed: only the route is right"),
            tile(str(one.broken), "broken: only the standard pass is right"),
            tile(figures.gain(result.detectable), "smallest detectable gain"),
            class_="tiles",
        ),
        element(
            "p",
            f"Both on the same {figures.count(one.n)} test examples, which were looked at once, after the choice. "
            "The smallest detectable gain is one that as many examples show in four of five cases.",
            class_="note",
        ),
    )


def variants_table(result: RunResult, mode: str) -> Markup:
    """All variants on the test set."""
    bounds = [wilson_interval(one.accuracy, one.n) for one in result.variants]
    scale = Scale(min(low for low, _ in bounds), max(high for _, high in bounds), 5, 115)
    writes = mode != "likelihood"
    rows = [_row(one, scale, writes) for one in result.variants]
    notes = [_CHOSEN_BEFORE] if writes else [_CHOSEN_BEFORE, _NOTHING_WRITTEN]
    return joined(
        table(_COLUMNS, rows, numbers=_NUMBERS, chosen=0), *[element("p", note, class_="note") for note in notes]
    )


def _row(one: Variant, scale: Scale, writes: bool) -> list[str]:
    low, high = wilson_interval(one.accuracy, one.n)
    name = element("div", element("b", one.name), element("small", _MEANINGS.get(one.name, "")), class_="name")
    return [
        name,
        figures.percent(one.accuracy),
        joined(_interval_mark(scale, low, one.accuracy, high), element("small", figures.interval(low, high))),
        f"{figures.count(one.correct)} of {figures.count(one.n)}",
        str(one.length),
        figures.percent(one.cut_off) if writes else figures.NONE,
        f"{one.tokens:.1f}" if writes else figures.NONE,
        route_text(one.route),
    ]


def _interval_mark(scale: Scale, low: float, middle: float, high: float) -> Markup:
    """An interval beside those of the other rows."""
    line = element("line", x1=scale(low), x2=scale(high), y1=10, y2=10, class_="reference")
    dot = element("circle", cx=scale(middle), cy=10, r=4.5, class_="best-point")
    return element("svg", line, dot, width=120, height=20, aria_hidden="true")
