"""Methods against each other on one page: what each found, what that cost, and what it would have found earlier."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from macro_routing.report.document import contents_list, document, section, write_file
from macro_routing.report.figure import Figure, Key
from macro_routing.report.formatting import NO_VALUE, format_count, format_duration, format_percent, format_points
from macro_routing.report.interval_chart import GAIN, LOSS, OPEN, IntervalRow, intervals_figure
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale, round_step
from macro_routing.report.tables import table
from macro_routing.runs.comparison_results import MethodRow, MethodRun, summarize_methods
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import ORACLE, ROUTER, STANDARD

_COLUMNS = ("method", "test", "difference", "asked", "layers × tokens", "search", "layers run")
_NOTE = (
    "Test: mean accuracy over seeds, ± sample standard deviation. Difference: to the standard pass on the same "
    "examples, with a 95 % bootstrap interval over test examples; seeds that share an example count as one. Asked: "
    "route × example outcomes requested by the search, known or not; layers × tokens: those of the answers it looked "
    "at, in millions; search: time on this machine, less for whoever comes later and finds scores in the store. "
    "Layers run: what the chosen route applies per token. Validation and test are the same for all and in no cost. "
    "Intervals are of one line each, not corrected for the number of methods; to take the best line of this table is "
    "to choose on test data. MACRO (top-1) and MACRO (no Vit.) are the paper's variants of a run of MACRO, the most "
    "probable program and the best draw, neither validated; they are no methods of their own."
)
_CURVE = (
    "What validation would have chosen, had the search ended there: its test accuracy minus the standard pass's on the "
    "same examples, so that methods with other seeds can stand beside each other; the mean over seeds. It is drawn, "
    "never chosen from. A method that scores all its routes in one round has one point."
)
_MEANINGS = {GAIN: "its interval lies above 0", LOSS: "its interval lies below 0", OPEN: "its interval holds 0"}
"""In the order of the drawing's own legend, which speaks of one test."""
_KINDS = {
    ROUTER: element("small", "a router: it decides for each prompt"),
    ORACLE: element("small", "knows the answers: a bound, no method"),
}
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 360.0, 62.0, 190.0, 14.0, 46.0
_LABEL = 15.0
"""Least distance between two names beside the curves."""
_LOOKS = tuple(f"method-{number}" for number in range(10))


def write_method_comparison(arms: Sequence[MethodRun], output: Path, about: str = "") -> Path:
    """Write the page of a comparison; ``about`` says what all of it has in common."""
    write_file(output, _page(arms, about))
    return output


def _page(arms: Sequence[MethodRun], about: str) -> str:
    rows = summarize_methods(arms)
    methods, seeds = len({arm.method for arm in arms}), len({arm.seed for arm in arms})
    title = f"{methods} methods, {seeds} seeds" if seeds > 1 else f"{methods} methods, one seed"
    sections = {
        "Results": joined(*([figure.html()] if (figure := differences_figure(rows)) else []), _table(rows)),
        "Accuracy against budget": curve_figure(arms).html(),
        "Every run": _runs(arms),
    }
    drawn = [section(name, contents) for name, contents in sections.items()]
    head = [element("h1", title), *([element("p", about)] if about else [])]
    return document(title, *head, contents_list(list(sections)), *drawn)


def differences_figure(rows: Sequence[MethodRow]) -> Figure | None:
    """Difference of every line to the standard pass; None where there is no other line."""
    shown = [
        IntervalRow(row.name, 100 * row.low, 100 * row.difference, 100 * row.high, _kind(row))
        for row in rows
        if row.name != STANDARD and row.kind != ORACLE
    ]
    if not shown:
        return None
    title = "Difference to the standard pass on the test set, with 95 % intervals"
    figure = intervals_figure("methods", title, "points", shown, 0.0)
    kinds = [kind for kind in _MEANINGS if any(row.kind == kind for row in shown)]
    words = [_MEANINGS[kind] for kind in kinds]
    return replace(figure, legend=tuple((shape, told) for (shape, _), told in zip(figure.legend, words, strict=True)))


def _kind(row: MethodRow) -> str:
    return GAIN if row.low > 0 else LOSS if row.high < 0 else OPEN


def _table(rows: Sequence[MethodRow]) -> Markup:
    most = max(row.seeds for row in rows)
    lines = [
        [
            joined(element("b", row.name), _KINDS.get(row.kind)),
            _accuracy(row, most),
            NO_VALUE if row.name == STANDARD else _difference(row),
            format_count(row.asked),
            f"{row.work / 1e6:.3g}",
            format_duration(row.seconds),
            f"{row.layers:.1f}",
        ]
        for row in rows
    ]
    return joined(table(_COLUMNS, lines, numbers=_COLUMNS[1:]), element("p", _NOTE, class_="note"))


def _accuracy(row: MethodRow, most: int) -> Markup:
    """With the seeds behind it: who has fewer has other test examples, and another standard pass, too."""
    spread = [] if row.spread is None else [f"± {100 * row.spread:.1f}"]
    seeds = [f"{row.seeds} of {most} seeds" if row.seeds < most else f"{most} seeds"] if most > 1 else []
    told = element("small", ", ".join([*spread, *seeds])) if spread or seeds else None
    return joined(format_percent(row.accuracy), told)


def _difference(row: MethodRow) -> Markup:
    return joined(
        format_points(row.difference), element("small", f"{format_points(row.low)} to {format_points(row.high)}")
    )


def _runs(arms: Sequence[MethodRun]) -> Markup:
    columns = ("run", "route", "test", "asked")
    lines = []
    for arm in arms:
        chosen = arm.result.variants[0]
        link = element(
            "a", f"{METHODS[arm.method].title}, seed {arm.seed}", href=f"{arm.method}-{arm.seed}/report.html"
        )
        lines.append([link, element("code", chosen.route), format_percent(chosen.accuracy), format_count(arm.asked)])
    return table(columns, lines, numbers=columns[2:])


# --- the curve ----------------------------------------------------------------------------------------------------


def curve_figure(arms: Sequence[MethodRun]) -> Figure:
    """Gain on the test set against outcomes asked for, one line per method."""
    curves = {
        method: mean_curve([_gains(arm) for arm in arms if arm.method == method])
        for method in dict.fromkeys(arm.method for arm in arms)
        if method != STANDARD  # it is the line across
    }
    standard = 0.0
    values = [standard, *(value for curve in curves.values() for _, value in curve)]
    step = round_step(max(max(values) - min(values), 0.02), 6)
    low, high = step * (math.ceil(min(values) / step) - 1), step * (math.floor(max(values) / step) + 1)
    most = max([1, *(asked for curve in curves.values() for asked, _ in curve)])
    x, y = Scale(0, most, _LEFT, _WIDTH - _RIGHT), Scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    shapes = [*_axes(x, y, most, (low, high, step)), *_standard(x, y, standard)]
    ends = []
    for look, (method, curve) in zip(_LOOKS, curves.items(), strict=False):
        shapes += _line(x, y, curve, look)
        if curve:
            ends.append((y(curve[-1][1]), METHODS[method].title, look, x(curve[-1][0])))
    shapes += _names(ends)
    key: Key = (element("path", d="M1 6L27 6", class_="reference"), "standard pass")
    return Figure(
        "budget",
        "Accuracy against budget",
        "Test accuracy over the standard pass, points, against budget",
        _WIDTH,
        _HEIGHT,
        joined(*shapes),
        (key,),
        _CURVE,
    )


def _gains(arm: MethodRun) -> MethodRun:
    """The same with its curve over the standard pass of its own seed."""
    baseline = arm.result.comparison.baseline
    return replace(arm, curve=tuple(replace(point, accuracy=point.accuracy - baseline) for point in arm.curve))


def mean_curve(arms: Sequence[MethodRun]) -> list[tuple[int, float]]:
    """The mean over seeds wherever one of them moves; each keeps its last value until it has a new one."""
    arms = [replace(arm, curve=arm.curve[1:] if len(arm.curve) == 2 else arm.curve) for arm in arms]  # one round
    places = sorted({point.asked for arm in arms for point in arm.curve})
    begun = max((arm.curve[0].asked for arm in arms if arm.curve), default=0)
    return [
        (place, statistics.mean(_value_at(arm, place) for arm in arms if arm.curve))
        for place in places
        if place >= begun
    ]


def _value_at(arm: MethodRun, asked: int) -> float:
    return [point.accuracy for point in arm.curve if point.asked <= asked][-1]


def _axes(x: Scale, y: Scale, most: int, levels: tuple[float, float, float]) -> list[Markup]:
    low, high, step = levels
    parts: list[Markup] = []
    for number in range(round(low / step), round(high / step) + 1):
        height = y(number * step)
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=height, y2=height, class_="grid"))
        told = f"{100 * number * step:+.3g}" if number else "0"
        parts.append(element("text", told, x=_LEFT - 8, y=height + 4, text_anchor="end"))
    across = round_step(most, 5, least=1)
    for number in range(int(most / across) + 1):
        place = x(number * across)
        parts.append(
            element("text", format_count(number * across), x=place, y=_HEIGHT - _BOTTOM + 20, text_anchor="middle")
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(element("text", "outcomes asked for", x=middle, y=_HEIGHT - _BOTTOM + 38, text_anchor="middle"))
    return parts


def _standard(x: Scale, y: Scale, standard: float) -> list[Markup]:
    return [element("line", x1=x.start, x2=x.end, y1=y(standard), y2=y(standard), class_="reference")]


def _line(x: Scale, y: Scale, curve: Sequence[tuple[int, float]], look: str) -> list[Markup]:
    """Steps, since nothing is known between two places."""
    path = ""
    for place, (asked, value) in enumerate(curve):
        path += f"H{x(asked):.1f}V{y(value):.1f}" if place else f"M{x(asked):.1f} {y(value):.1f}"
    dots = [element("circle", cx=x(asked), cy=y(value), r=3.2, class_=f"{look} dot") for asked, value in curve]
    return [*([element("path", d=path, class_=look)] if len(curve) > 1 else []), *dots]


def _names(ends: Sequence[tuple[float, str, str, float]]) -> list[Markup]:
    """Names at the right, from top to bottom as the curves end, none over another; a thin line leads to its curve."""
    parts: list[Markup] = []
    ends = sorted(ends)
    edge = _WIDTH - _RIGHT + 10
    for (height, name, look, end), place in zip(ends, _spread_out([end[0] for end in ends]), strict=True):
        parts.append(element("path", d=f"M{end + 5:.1f} {height:.1f}L{edge:.1f} {place:.1f}", class_=f"{look} lead"))
        parts.append(element("text", name, x=edge + 5, y=place + 4, class_="strong"))
    return parts


def _spread_out(heights: Sequence[float]) -> list[float]:
    """Heights from top to bottom moved apart: down first, then what went too far down comes up again."""
    places: list[float] = []
    for height in heights:
        places.append(max(height, places[-1] + _LABEL) if places else height)
    lowest = _HEIGHT - 8
    for place in reversed(range(len(places))):
        places[place] = min(places[place], lowest)
        lowest = places[place] - _LABEL
    return places
