"""Accuracy per round: every draw, their best and median, beside the standard pass on the same examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from macro_routing.report.figure import Figure, Key
from macro_routing.report.formatting import format_percent
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale, round_step
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.round_report import wilson_interval
from macro_routing.search.macro import select_elite
from macro_routing.search.searcher import Draw, Score, Stopped

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 62.0, 16.0, 14.0, 48.0, 354.0
_NARROWEST, _ROUND_WIDTH, _WIDEST = 860.0, 60.0, 3000.0
_SPREAD = 0.36
"""How far from its round's middle a draw may be put, in rounds."""
_MOST_DRAWS = 4_000
"""More than these are no longer told apart, and make the page large."""

_CAPTION = (
    "Every round has training examples of its own, so rounds differ in difficulty: compare with the standard pass on "
    "the same examples, not with the round before. Bands and bars are 95 % intervals of one accuracy; the best of many "
    "draws looks better than it is. A draw that racing stopped has no score: its mark stands at the highest it could "
    "still have reached, and it is in no median, which tends to lie above that of all draws."
)

Points = list[tuple[int, float]]


def rounds_chart(
    rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
) -> Markup:
    """The chart with its legend; a sentence where there is nothing to draw."""
    figure = rounds_figure(rounds, planned, settings, draws)
    return element("p", "No round is finished yet.") if figure is None else figure.html()


def rounds_figure(
    rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
) -> Figure | None:
    """The chart; None where there is nothing to draw. ``settings`` says how many ``draws`` and ``elite`` there are."""
    if not rounds:
        return None
    shown = draws if len(draws) <= _MOST_DRAWS else ()
    chart = _Chart(rounds, max(planned, len(rounds)), settings, shown)
    label = f"Accuracy in {len(rounds)} rounds; the table below has the numbers"
    return Figure("rounds", "Accuracy per round", label, chart.width, _HEIGHT, chart.shapes(), _legend(shown), _CAPTION)


class _Chart:
    """Places of rounds and accuracies."""

    def __init__(
        self, rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
    ) -> None:
        self.rounds, self.planned, self.settings = rounds, planned, settings
        self.by_round: dict[int, list[Draw]] = {}
        for draw in draws:
            self.by_round.setdefault(draw.round + 1, []).append(draw)
        self.width = min(max(_NARROWEST, _LEFT + _RIGHT + _ROUND_WIDTH * planned), _WIDEST)
        # Half a round of room on both sides, so that a single round has a band too.
        self.x = Scale(0.5, planned + 0.5, _LEFT, self.width - _RIGHT)
        self.low, self.high, self.step = _accuracy_range(rounds, draws)
        self.y = Scale(self.low, self.high, _HEIGHT - _BOTTOM, _TOP)

    def shapes(self) -> Markup:
        best = [(one.number, one.best) for one in self.rounds if one.median is not None]
        median = [(one.number, one.median) for one in self.rounds if one.median is not None]
        return joined(
            *self._axes(),
            *self._standard(),
            *[mark for number, draws in self.by_round.items() for mark in self._draws(number, draws)],
            *self._line(median, "median"),
            *self._line(best, "best"),
            *[self._interval(one) for one in self.rounds if one.median is not None],
            *[self._point(place, value, "median", "median of complete draws") for place, value in median],
            *[self._point(place, value, "best", "best draw") for place, value in best],
            *self._below_axis(),
        )

    def _axes(self) -> list[Markup]:
        parts = []
        for number in range(round(self.low / self.step), round(self.high / self.step) + 1):
            height, right = self.y(number * self.step), self.width - _RIGHT
            parts.append(element("line", x1=_LEFT, x2=right, y1=height, y2=height, class_="grid"))
            name = f"{100 * number * self.step:g} %"
            parts.append(element("text", name, x=_LEFT - 8, y=height + 4, text_anchor="end"))
        return parts

    def _standard(self) -> list[Markup]:
        """The standard pass and its interval, level within each round."""

        def outline(values: Callable[[RoundReport], float]) -> list[str]:
            ends = [(edge, values(one)) for one in self.rounds for edge in (one.number - 0.5, one.number + 0.5)]
            return [f"{self.x(edge):.1f},{self.y(value):.1f}" for edge, value in ends]

        upper, lower = outline(lambda one: one.standard_high), outline(lambda one: one.standard_low)
        band = element("polygon", points=" ".join([*upper, *reversed(lower)]), class_="band")
        line = element("polyline", points=" ".join(outline(lambda one: one.standard)), class_="reference")
        return [band, line]

    def _draws(self, number: int, draws: Sequence[Draw]) -> list[Markup]:
        """A round's draws side by side, in the order they were drawn; one that failed has no place."""
        elite = select_elite([draw.outcome for draw in draws], self.settings.get("elite", 0))
        marks = []
        for place, draw in enumerate(draws):
            x = self.x(number + _SPREAD * (2 * (place + 0.5) / len(draws) - 1))
            if isinstance(draw.outcome, Score):
                kind = "draw elite" if place in elite else "draw"
                marks.append(element("circle", cx=x, cy=self.y(draw.outcome.accuracy), r=2.6, class_=kind))
            elif isinstance(draw.outcome, Stopped):
                y = self.y(draw.outcome.max_accuracy)
                marks.append(element("path", d=f"M{x - 3.5:.1f} {y - 6:.1f}h7l-3.5 6z", class_="stopped"))
        return marks

    def _line(self, points: Points, name: str) -> list[Markup]:
        """Neighbouring rounds joined; a round without a value leaves a gap."""
        runs: list[Points] = []
        for point in points:
            if runs and runs[-1][-1][0] == point[0] - 1:
                runs[-1].append(point)
            else:
                runs.append([point])
        return [
            element("polyline", points=" ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in run), class_=name)
            for run in runs
            if len(run) > 1
        ]

    def _interval(self, one: RoundReport) -> Markup:
        """The best draw's interval, as a bar with ends."""
        low, high = (self.y(value) for value in wilson_interval(one.best, one.examples))
        x = self.x(one.number)
        bar = f"M{x - 4:.1f} {high:.1f}h8m-4 0V{low:.1f}m-4 0h8"
        return element("path", d=bar, class_="best-interval")

    def _point(self, number: int, value: float, name: str, title: str) -> Markup:
        told = element("title", f"round {number}, {title}: {format_percent(value)}")
        return element("circle", told, cx=self.x(number), cy=self.y(value), r=4.5, class_=f"{name}-point")

    def _below_axis(self) -> list[Markup]:
        """Round numbers, and how many draws were stopped."""
        every = math.ceil(_ROUND_WIDTH / (self.x(2) - self.x(1)))
        draws = self.settings["draws"]
        rows = {
            "round": [(number, str(number)) for number in range(1, self.planned + 1, every)],
            "stopped": [(one.number, f"{one.stopped} of {draws}") for one in self.rounds[::every]],
        }
        parts = []
        for (name, cells), below in zip(rows.items(), (22, 39), strict=True):
            height = _HEIGHT - _BOTTOM + below
            parts.append(element("text", name, x=_LEFT - 8, y=height, text_anchor="end"))
            parts += [element("text", cell, x=self.x(place), y=height, text_anchor="middle") for place, cell in cells]
        return parts


def _accuracy_range(rounds: Sequence[RoundReport], draws: Sequence[Draw]) -> tuple[float, float, float]:
    """From below the lowest to above the highest value that is drawn, in round numbers."""
    values = [value for one in rounds for value in (one.standard_low, one.standard_high)]
    for one in rounds:
        if one.median is not None:
            values += [one.median, *wilson_interval(one.best, one.examples)]
    values += [draw.outcome.accuracy for draw in draws if isinstance(draw.outcome, Score)]
    values += [draw.outcome.max_accuracy for draw in draws if isinstance(draw.outcome, Stopped)]
    step = round_step(max(max(values) - min(values), 0.05), 6)
    low = max(0.0, step * int(min(values) / step + 1e-9))
    high = min(1.0, step * -int(-max(values) / step - 1 + 1e-9))
    return low, max(high, low + step), step


def _legend(draws: Sequence[Draw]) -> tuple[Key, ...]:
    def line(name: str) -> Markup:
        return element("path", d="M1 6L27 6", class_=name)

    band = element("rect", x=0, y=0, width=28, height=12, class_="band")
    best, median = (element("circle", cx=14, cy=6, r=4, class_=f"{name}-point") for name in ("best", "median"))
    keys = [(joined(line("best"), best), "best draw"), (joined(line("median"), median), "median of complete draws")]
    if any(isinstance(draw.outcome, Score) for draw in draws):
        both = joined(*(element("circle", cx=x, cy=6, r=2.6, class_=name) for x, name in _DOTS))
        keys.append((both, "a draw (blue: it moved the policy)"))
    if any(isinstance(draw.outcome, Stopped) for draw in draws):
        keys.append((element("path", d="M10.5 3h7l-3.5 6z", class_="stopped"), "stopped by racing: at most this"))
    return (*keys, (joined(band, line("reference")), "standard pass, 95 % interval"))


_DOTS = ((9, "draw"), (19, "draw elite"))
