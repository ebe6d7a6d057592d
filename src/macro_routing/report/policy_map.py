"""The policy as a heatmap over the layers, round by round."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from macro_routing.report.chart_parts import svg_text
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_percent, format_signed
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.policy_flow import Floats, expected_actions, moves_by_displacement
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import integer_ticks
from macro_routing.report.style import HEAT_LEVELS
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.top_k import decode_top_programs

_LEFT, _TOP, _BOTTOM, _ROW, _GAP = 92.0, 8.0, 40.0, 17.0, 7.0
_WIDTH = 860.0
_MIN_CELL = 9.0
_MAX_REACH = 12
"""Longer moves are not drawn; the caption says so."""
_MIN_TITLE = 0.05
"""Cells from this frequency on have a tooltip; tooltips of all cells would make the page large."""

_CAPTION = (
    "From left to right the layer a program stands at, from bottom to top where it goes from there. The darker, the "
    "more often: 1 means once in every program the policy writes. +1 is the next layer, 0 the same once more; adds are "
    "counted with their moves, and once more in a row of their own. RJ rejoins: the rest is the standard pass."
)


@dataclass(frozen=True)
class PolicyFrame:
    """The policy after some rounds."""

    rounds: int
    policy: MarkovPolicy

    @property
    def name(self) -> str:
        """The label of its button."""
        return "before" if self.rounds == 0 else str(self.rounds)


def render_policy_maps(frames: Sequence[PolicyFrame], chosen: Route | None) -> Markup:
    """One map per frame, with a button each; the last is shown first."""
    return render_template("policy_maps.html", frames=[_frame_view(frame, chosen) for frame in frames])


def _frame_view(frame: PolicyFrame, chosen: Route | None) -> dict[str, Any]:
    best = decode_top_programs(frame.policy, 1)[0]
    assert best.log_probability is not None
    return {
        "name": frame.name,
        "figure": policy_figure(frame, chosen),
        "probability": format_percent(math.exp(best.log_probability)),
        "program": str(best.program),
    }


def policy_figure(frame: PolicyFrame, chosen: Route | None) -> Figure:
    """The map of one policy."""
    space = frame.policy.space
    chart = _PolicyMap(space, expected_actions(frame.policy))
    when = "before the first round" if frame.rounds == 0 else f"after round {frame.rounds}"
    label = f"How often the policy {when} moves where, layer by layer"
    moves = [] if chosen is None else chart.draw_route(chosen)
    shapes = join_markup(*chart.draw_background(), *chart.draw_cells(), *moves)
    far = f" Moves farther than {_MAX_REACH} layers are not drawn." if space.radius > _MAX_REACH else ""
    legend = _make_legend(has_route=bool(moves))
    return Figure("policy", f"The policy {when}", label, chart.width, chart.height, shapes, legend, _CAPTION + far)


class _PolicyMap:
    """Rows from the farthest move ahead down to the farthest back, then adds and rejoin; a column per layer."""

    def __init__(self, space: RouteSpace, actions: Floats) -> None:
        moves = moves_by_displacement(space, actions)
        reach = min(space.radius, _MAX_REACH)
        self.space, self.reach = space, reach
        self.rows = [(_format_delta(delta), moves[:, delta + space.radius]) for delta in range(reach, -reach - 1, -1)]
        if space.window:
            self.rows.append(("with an add", actions[:, space.rejoin_action + 1 :].sum(axis=1)))
        self.rows.append(("RJ", actions[:, space.rejoin_action]))
        self.cell = max((_WIDTH - _LEFT - 8) / space.layers, _MIN_CELL)
        self.width = _LEFT + self.cell * space.layers + 8
        self.height = self._row_y(len(self.rows)) + _BOTTOM

    def _column_x(self, layer: int) -> float:
        return _LEFT + self.cell * layer

    def _row_y(self, row: int) -> float:
        return _TOP + _ROW * row + (_GAP if row > 2 * self.reach else 0)

    def draw_background(self) -> list[Markup]:
        """Empty rows with their names, and the axis of layers."""
        parts = []
        width, bottom = self.cell * self.space.layers, self._row_y(len(self.rows))
        for row, (name, _) in enumerate(self.rows):
            box = {"x": _LEFT, "y": self._row_y(row), "width": width, "height": _ROW - 1}
            parts.append(svg_element("rect", class_="never", fill_opacity=0.5, **box))
            parts.append(svg_text(name, _LEFT - 8, box["y"] + 12.5, "end", "strong" if name == "+1" else None))
        layers = integer_ticks(0, self.space.layers - 1, 10)
        parts += [svg_text(f"L{layer}", self._column_x(layer) + self.cell / 2, bottom + 14) for layer in layers]
        return [*parts, svg_text("at layer", _LEFT + width / 2, bottom + 32)]

    def draw_cells(self) -> list[Markup]:
        """Frequent moves one by one, the others as one path per shade."""
        faint: dict[int, str] = {}
        parts = []
        width, height = self.cell - 1, _ROW - 1
        for row, (name, values) in enumerate(self.rows):
            for layer in np.flatnonzero(values >= HEAT_LEVELS[0]).tolist():
                value, x, y = float(values[layer]), self._column_x(layer), self._row_y(row)
                level = bisect_right(HEAT_LEVELS, value)
                if value < _MIN_TITLE:
                    box = f"M{x:.1f} {y:.0f}h{width:.1f}v{height:.0f}h-{width:.1f}z"
                    faint[level] = faint.get(level, "") + box
                else:
                    title = svg_element("title", f"L{layer}, {name}: {value:.2f} times per program")
                    size = {"width": width, "height": height}
                    parts.append(svg_element("rect", title, x=x, y=y, class_=f"h{level}", **size))
        return [*[svg_element("path", d=path, class_=f"h{level}") for level, path in faint.items()], *parts]

    def draw_route(self, route: Route) -> list[Markup]:
        """The moves of a route that do not lead to the next layer."""
        moves = dict.fromkeys((before.layer, step.layer - before.layer) for before, step in pairwise(route.steps))
        size = {"width": self.cell, "height": _ROW, "rx": 2}
        return [
            svg_element(
                "rect", x=self._column_x(layer) - 0.5, y=self._row_y(self.reach - delta) - 0.5, class_="taken", **size
            )
            for layer, delta in moves
            if delta != 1 and abs(delta) <= self.reach
        ]


def _format_delta(delta: int) -> str:
    return "0" if delta == 0 else format_signed(delta, 0)


def _make_legend(*, has_route: bool) -> tuple[LegendKey, ...]:
    boxes = {level: svg_element("rect", x=1, y=0, width=26, height=12, class_=f"h{level}") for level in (1, 3, 5, 7, 9)}
    keys = [(box, f"from {HEAT_LEVELS[level - 1]:g}") for level, box in boxes.items()]
    if has_route:
        outline = svg_element("rect", x=2, y=1, width=24, height=10, rx=2, class_="taken")
        keys.append((outline, "the chosen route goes there"))
    return tuple(keys)
