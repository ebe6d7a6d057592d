"""Accuracy per round: every draw, their best and median, beside the standard pass on the same examples."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.rendering import render_paragraphs, render_template
from macro_routing.report.scale import Scale, list_nice_axis_ticks
from macro_routing.runs.progress import RoundReport
from macro_routing.search.macro import select_elite
from macro_routing.search.searcher import Draw, Score, StoppedScore

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 62.0, 16.0, 14.0, 48.0, 354.0
_MIN_WIDTH, _ROUND_WIDTH, _MAX_WIDTH = 860.0, 60.0, 3000.0
_SPREAD = 0.36
"""Maximum distance of a draw from the middle of its round, in rounds."""
_MAX_DRAWS = 4_000
"""More draws than these cannot be told apart and make the page large."""

_CAPTION = (
    "Every round has training examples of its own, so rounds differ in difficulty: compare with the standard pass on "
    "the same examples, not with the round before. Bands and bars are 95 % intervals of one accuracy; the best of many "
    "draws looks better than it is. A draw that racing stopped has no score: its mark stands at the highest it could "
    "still have reached, and it is in no median, which tends to lie above that of all draws."
)


def render_rounds_chart(
    rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
) -> Markup:
    """The chart with its legend, or a sentence if there is nothing to draw."""
    figure = draw_rounds_chart(rounds, planned, settings, draws)
    return render_paragraphs("No round is finished yet.") if figure is None else figure.to_html()


def draw_rounds_chart(
    rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
) -> Figure | None:
    """The chart; None if there is nothing to draw. ``settings`` says how many ``draws`` and ``elite`` there are."""
    if not rounds:
        return None
    planned = max(planned, len(rounds))
    marks = _place_marks_of_drawn_routes(draws if len(draws) <= _MAX_DRAWS else (), settings.get("elite", 0))
    scored = [report for report in rounds if report.median is not None]
    intervals = [(report.number, *wilson_interval(report.best, report.examples)) for report in scored]
    values = [value for report in rounds for value in (report.standard_low, report.standard_high)]
    values += [value for _, low, high in intervals for value in (low, high)]
    values += [report.median for report in scored if report.median is not None]
    ticks = list_nice_axis_ticks([*values, *(mark.accuracy for mark in marks)], 6, min_span=0.05)
    width = min(max(_MIN_WIDTH, _LEFT + _RIGHT + _ROUND_WIDTH * planned), _MAX_WIDTH)
    # Half a round on both sides, so that a single round has a band too.
    x = Scale(0.5, planned + 0.5, _LEFT, width - _RIGHT)
    every = math.ceil(_ROUND_WIDTH / (x(2) - x(1)))
    shapes = render_template(
        "rounds_chart.svg",
        x=x,
        y=Scale(ticks[0], ticks[-1], _HEIGHT - _BOTTOM, _TOP),
        ticks=[(tick, f"{100 * tick:g} %") for tick in ticks],
        rounds=rounds,
        marks=marks,
        intervals=intervals,
        medians=[(report.number, report.median) for report in scored],
        bests=[(report.number, report.best) for report in scored],
        numbers=range(1, planned + 1, every),
        labelled=rounds[::every],
        draws=settings["draws"],
    )
    label = f"Accuracy in {len(rounds)} rounds; the table below has the numbers"
    return Figure("rounds", "Accuracy per round", label, width, _HEIGHT, shapes, _make_legend(marks), _CAPTION)


class _DrawMark(NamedTuple):
    x: float
    """Its round, and its place among the round's draws."""
    accuracy: float
    """Of a draw that racing stopped the highest it could still have reached."""
    class_: str


def _place_marks_of_drawn_routes(draws: Sequence[Draw], elite_size: int) -> list[_DrawMark]:
    """Each round's draws side by side, in the order they were drawn; failed ones are not drawn."""
    by_round: dict[int, list[Draw]] = {}
    for draw in draws:
        by_round.setdefault(draw.round + 1, []).append(draw)
    marks = []
    for number, group in by_round.items():
        elite = select_elite([draw.outcome for draw in group], elite_size)
        for index, draw in enumerate(group):
            x = number + _SPREAD * (2 * (index + 0.5) / len(group) - 1)
            if isinstance(draw.outcome, Score):
                marks.append(_DrawMark(x, draw.outcome.accuracy, "draw elite" if index in elite else "draw"))
            elif isinstance(draw.outcome, StoppedScore):
                marks.append(_DrawMark(x, draw.outcome.accuracy_if_rest_correct, "stopped"))
    return marks


def _make_legend(marks: Sequence[_DrawMark]) -> list[LegendKey]:
    keys = [
        LegendKey("line with dot", "best", "best draw"),
        LegendKey("line with dot", "median", "median of complete draws"),
    ]
    classes = {mark.class_ for mark in marks}
    if classes - {"stopped"}:
        keys.append(LegendKey("dots", "draw", "a draw (blue: it moved the policy)"))
    if "stopped" in classes:
        keys.append(LegendKey("triangle", "stopped", "stopped by racing: at most this"))
    return [*keys, LegendKey("line on band", "reference", "standard pass, 95 % interval")]
