"""Accuracy per round: best and median of the draws beside the standard pass on the same examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from macro_routing.report import figures
from macro_routing.report.markup import Markup, element
from macro_routing.report.scale import Scale, round_step
from macro_routing.runs.progress import RoundReport

_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 62.0, 16.0, 14.0, 48.0, 314.0
_NARROWEST, _ROUND_WIDTH, _WIDEST = 860.0, 60.0, 3000.0

_CAPTION = (
    "Every round has training examples of its own, so rounds differ in difficulty: compare with the standard pass on "
    "the same examples, not with the round before. The band is its 95 % interval. Draws that racing stopped have no "
    "score; they are counted below the axis and are in no median, which tends to lie above that of all draws."
)

Points = list[tuple[int, float]]


def rounds_chart(rounds: Sequence[RoundReport], planned: int, draws: int) -> Markup:
    """The chart with its legend; a sentence where there is nothing to draw."""
    if not rounds:
        return element("p", "No round is finished yet.")
    drawing = element("div", _Chart(rounds, max(planned, len(rounds)), draws).svg(), class_="scroll")
    return element("figure", drawing, _legend(), element("figcaption", _CAPTION))


class _Chart:
    """Places of rounds and accuracies."""

    def __init__(self, rounds: Sequence[RoundReport], planned: int, draws: int) -> None:
        self.rounds, self.planned, self.draws = rounds, planned, draws
        self.width = min(max(_NARROWEST, _LEFT + _RIGHT + _ROUND_WIDTH * planned), _WIDEST)
        # Half a round of room on both sides, so that a single round has a band too.
        self.x = Scale(0.5, planned + 0.5, _LEFT, self.width - _RIGHT)
        self.low, self.high, self.step = _accuracy_range(rounds)
        self.y = Scale(self.low, self.high, _HEIGHT - _BOTTOM, _TOP)

    def svg(self) -> Markup:
        best = [(one.number, one.best) for one in self.rounds if one.median is not None]
        median = [(one.number, one.median) for one in self.rounds if one.median is not None]
        return element(
            "svg",
            *self._axes(),
            *self._standard(),
            *self._line(median, "median"),
            *self._line(best, "best"),
            *[self._point(place, value, "median", "median of complete draws") for place, value in median],
            *[self._point(place, value, "best", "best draw") for place, value in best],
            *self._below_axis(),
            class_="wide",
            viewBox=f"0 0 {self.width:.0f} {_HEIGHT:.0f}",
            role="img",
            aria_label=f"Accuracy in {len(self.rounds)} rounds; the table below has the numbers",
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

    def _point(self, number: int, value: float, name: str, title: str) -> Markup:
        told = element("title", f"round {number}, {title}: {figures.percent(value)}")
        return element("circle", told, cx=self.x(number), cy=self.y(value), r=4.5, class_=f"{name}-point")

    def _below_axis(self) -> list[Markup]:
        """Round numbers, and how many draws were stopped."""
        every = math.ceil(_ROUND_WIDTH / (self.x(2) - self.x(1)))
        rows = {
            "round": [(number, str(number)) for number in range(1, self.planned + 1, every)],
            "stopped": [(one.number, f"{one.stopped} of {self.draws}") for one in self.rounds[::every]],
        }
        parts = []
        for (name, cells), below in zip(rows.items(), (22, 39), strict=True):
            height = _HEIGHT - _BOTTOM + below
            parts.append(element("text", name, x=_LEFT - 8, y=height, text_anchor="end"))
            parts += [element("text", cell, x=self.x(place), y=height, text_anchor="middle") for place, cell in cells]
        return parts


def _accuracy_range(rounds: Sequence[RoundReport]) -> tuple[float, float, float]:
    """From below the lowest to above the highest value that is drawn, in round numbers."""
    values = [value for one in rounds for value in (one.standard_low, one.standard_high)]
    values += [value for one in rounds if one.median is not None for value in (one.best, one.median)]
    step = round_step(max(max(values) - min(values), 0.05), 6)
    low = max(0.0, step * int(min(values) / step + 1e-9))
    high = min(1.0, step * -int(-max(values) / step - 1 + 1e-9))
    return low, max(high, low + step), step


def _legend() -> Markup:
    def swatch(*shapes: Markup) -> Markup:
        return element("svg", *shapes, width=28, height=12, aria_hidden="true")

    def line(name: str) -> Markup:
        return element("path", d="M1 6L27 6", class_=name)

    band = element("rect", x=0, y=0, width=28, height=12, class_="band")
    best, median = (element("circle", cx=14, cy=6, r=4, class_=f"{name}-point") for name in ("best", "median"))
    return element(
        "div",
        element("span", swatch(line("best"), best), "best draw"),
        element("span", swatch(line("median"), median), "median of complete draws"),
        element("span", swatch(band, line("reference")), "standard pass, 95 % interval"),
        class_="legend",
    )
