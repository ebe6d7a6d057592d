"""Accuracy per round: every draw, their best and median, beside the standard pass on the same examples."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.report.chart_parts import (
    error_bar,
    format_points_attribute,
    horizontal_gridline,
    line_key,
    svg_text,
)
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_percent
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.rendering import render_paragraphs
from macro_routing.report.scale import Scale, round_step
from macro_routing.runs.progress import RoundReport
from macro_routing.search.macro import select_elite
from macro_routing.search.searcher import Draw, Score, Stopped

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

Points = Sequence[tuple[float, float]]


def render_rounds_chart(
    rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
) -> Markup:
    """The chart with its legend, or a sentence if there is nothing to draw."""
    figure = rounds_figure(rounds, planned, settings, draws)
    return render_paragraphs("No round is finished yet.") if figure is None else figure.to_html()


def rounds_figure(
    rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
) -> Figure | None:
    """The chart; None if there is nothing to draw. ``settings`` says how many ``draws`` and ``elite`` there are."""
    if not rounds:
        return None
    shown = draws if len(draws) <= _MAX_DRAWS else ()
    chart = _RoundsChart(rounds, max(planned, len(rounds)), settings, shown)
    label = f"Accuracy in {len(rounds)} rounds; the table below has the numbers"
    return Figure(
        "rounds", "Accuracy per round", label, chart.width, _HEIGHT, chart.draw_shapes(), _make_legend(shown), _CAPTION
    )


class _RoundsChart:
    def __init__(
        self, rounds: Sequence[RoundReport], planned: int, settings: dict[str, int], draws: Sequence[Draw]
    ) -> None:
        self.rounds, self.planned, self.settings = rounds, planned, settings
        self.by_round: dict[int, list[Draw]] = {}
        for draw in draws:
            self.by_round.setdefault(draw.round + 1, []).append(draw)
        self.width = min(max(_MIN_WIDTH, _LEFT + _RIGHT + _ROUND_WIDTH * planned), _MAX_WIDTH)
        # Half a round on both sides, so that a single round has a band too.
        self.x = Scale(0.5, planned + 0.5, _LEFT, self.width - _RIGHT)
        self.low, self.high, self.step = _accuracy_range(rounds, draws)
        self.y = Scale(self.low, self.high, _HEIGHT - _BOTTOM, _TOP)

    def draw_shapes(self) -> Markup:
        scored = [report for report in self.rounds if report.median is not None]
        best = [(report.number, report.best) for report in scored]
        median = [(report.number, report.median) for report in scored if report.median is not None]
        return join_markup(
            *self._draw_axes(),
            *self._draw_standard(),
            *(mark for number, draws in self.by_round.items() for mark in self._draw_draws(number, draws)),
            *self._draw_lines(median, "median"),
            *self._draw_lines(best, "best"),
            *map(self._draw_best_interval, scored),
            *(self._draw_point(number, value, "median", "median of complete draws") for number, value in median),
            *(self._draw_point(number, value, "best", "best draw") for number, value in best),
            *self._draw_labels(),
        )

    def _draw_axes(self) -> list[Markup]:
        levels = [number * self.step for number in range(round(self.low / self.step), round(self.high / self.step) + 1)]
        right = self.width - _RIGHT
        return [horizontal_gridline(f"{100 * level:g} %", self.y(level), _LEFT, right) for level in levels]

    def _draw_standard(self) -> list[Markup]:
        """The standard pass and its interval, level within each round."""

        def outline(value_of: Callable[[RoundReport], float]) -> Points:
            edges = [(report.number + side, value_of(report)) for report in self.rounds for side in (-0.5, 0.5)]
            return [(self.x(edge), self.y(value)) for edge, value in edges]

        upper, lower = outline(lambda report: report.standard_high), outline(lambda report: report.standard_low)
        line = format_points_attribute(outline(lambda report: report.standard))
        return [
            svg_element("polygon", points=format_points_attribute([*upper, *reversed(lower)]), class_="band"),
            svg_element("polyline", points=line, class_="reference"),
        ]

    def _draw_draws(self, number: int, draws: Sequence[Draw]) -> list[Markup]:
        """A round's draws side by side, in the order they were drawn; failed ones are not drawn."""
        elite = select_elite([draw.outcome for draw in draws], self.settings.get("elite", 0))
        marks = []
        for index, draw in enumerate(draws):
            x = self.x(number + _SPREAD * (2 * (index + 0.5) / len(draws) - 1))
            if isinstance(draw.outcome, Score):
                class_ = "draw elite" if index in elite else "draw"
                marks.append(svg_element("circle", cx=x, cy=self.y(draw.outcome.accuracy), r=2.6, class_=class_))
            elif isinstance(draw.outcome, Stopped):
                y = self.y(draw.outcome.max_accuracy)
                marks.append(svg_element("path", d=f"M{x - 3.5:.1f} {y - 6:.1f}h7l-3.5 6z", class_="stopped"))
        return marks

    def _draw_lines(self, points: Points, class_: str) -> list[Markup]:
        """Neighbouring rounds joined; a round without a value leaves a gap."""
        segments: list[list[tuple[float, float]]] = []
        for point in points:
            if segments and segments[-1][-1][0] == point[0] - 1:
                segments[-1].append(point)
            else:
                segments.append([point])
        lines = [[(self.x(x), self.y(y)) for x, y in segment] for segment in segments if len(segment) > 1]
        return [svg_element("polyline", points=format_points_attribute(line), class_=class_) for line in lines]

    def _draw_best_interval(self, report: RoundReport) -> Markup:
        low, high = wilson_interval(report.best, report.examples)
        return error_bar(self.x(report.number), self.y(low), self.y(high), "best-interval")

    def _draw_point(self, number: float, value: float, class_: str, meaning: str) -> Markup:
        title = svg_element("title", f"round {number}, {meaning}: {format_percent(value)}")
        return svg_element("circle", title, cx=self.x(number), cy=self.y(value), r=4.5, class_=f"{class_}-point")

    def _draw_labels(self) -> list[Markup]:
        """Round numbers, and how many draws were stopped, below the axis."""
        every = math.ceil(_ROUND_WIDTH / (self.x(2) - self.x(1)))
        draws = self.settings["draws"]
        rows = {
            "round": [(number, str(number)) for number in range(1, self.planned + 1, every)],
            "stopped": [(report.number, f"{report.stopped} of {draws}") for report in self.rounds[::every]],
        }
        parts = []
        for (name, labels), offset in zip(rows.items(), (22, 39), strict=True):
            y = _HEIGHT - _BOTTOM + offset
            parts.append(svg_text(name, _LEFT - 8, y, "end"))
            parts += [svg_text(label, self.x(number), y) for number, label in labels]
        return parts


def _accuracy_range(rounds: Sequence[RoundReport], draws: Sequence[Draw]) -> tuple[float, float, float]:
    """From below the lowest to above the highest value that is drawn, in round numbers, and the step between them."""
    values = [value for report in rounds for value in (report.standard_low, report.standard_high)]
    for report in rounds:
        if report.median is not None:
            values += [report.median, *wilson_interval(report.best, report.examples)]
    values += [draw.outcome.accuracy for draw in draws if isinstance(draw.outcome, Score)]
    values += [draw.outcome.max_accuracy for draw in draws if isinstance(draw.outcome, Stopped)]
    step = round_step(max(max(values) - min(values), 0.05), 6)
    low = max(0.0, step * int(min(values) / step + 1e-9))
    high = min(1.0, step * -int(-max(values) / step - 1 + 1e-9))
    return low, max(high, low + step), step


def _make_legend(draws: Sequence[Draw]) -> tuple[LegendKey, ...]:
    band = svg_element("rect", x=0, y=0, width=28, height=12, class_="band")
    best, median = (svg_element("circle", cx=14, cy=6, r=4, class_=f"{name}-point") for name in ("best", "median"))
    keys = [
        (join_markup(line_key("best"), best), "best draw"),
        (join_markup(line_key("median"), median), "median of complete draws"),
    ]
    if any(isinstance(draw.outcome, Score) for draw in draws):
        dots = [svg_element("circle", cx=x, cy=6, r=2.6, class_=name) for x, name in ((9, "draw"), (19, "draw elite"))]
        keys.append((join_markup(*dots), "a draw (blue: it moved the policy)"))
    if any(isinstance(draw.outcome, Stopped) for draw in draws):
        keys.append((svg_element("path", d="M10.5 3h7l-3.5 6z", class_="stopped"), "stopped by racing: at most this"))
    return (*keys, (join_markup(band, line_key("reference")), "standard pass, 95 % interval"))
