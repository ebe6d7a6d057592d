"""The policy as a heatmap over the layers, round by round."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from macro_routing.report.figure import Figure, Key
from macro_routing.report.formatting import format_percent
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.policy_flow import Floats, expected_actions, moves_by_displacement
from macro_routing.report.scale import ticks
from macro_routing.report.style import HEAT
from macro_routing.report.tables import route_text
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.top_k import decode_top_programs

_LEFT, _TOP, _BOTTOM, _ROW, _GAP = 92.0, 8.0, 40.0, 17.0, 7.0
_WIDTH = 860.0
_NARROWEST_CELL = 9.0
_FARTHEST = 12
"""Moves beyond are rare settings; they are left out and it is said."""
_TOLD = 0.05
"""Cells from here on say their number when pointed at; all of them would make the page large."""

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
        """What its button says."""
        return "before" if self.rounds == 0 else str(self.rounds)


def policy_maps(frames: Sequence[PolicyFrame], chosen: Route | None) -> Markup:
    """One map per frame, with a button each; the last is shown first."""
    parts: list[Markup] = []
    for place, frame in enumerate(frames):
        name, is_last = f"policy-{place}", place == len(frames) - 1
        checked = "" if is_last else None
        parts.append(element("input", type="radio", name="policy", id=name, checked=checked))
        parts.append(element("label", frame.name, for_=name))
        shown = element("div", policy_figure(frame, chosen).html(), _most_probable(frame), class_="frame")
        parts.append(shown)
    told = "The policy before the first round and after each one; with the arrow keys it can be watched learning."
    return joined(element("p", told), element("div", *parts, class_="frames"))


def _most_probable(frame: PolicyFrame) -> Markup:
    best = decode_top_programs(frame.policy, 1)[0]
    assert best.log_probability is not None
    share = format_percent(math.exp(best.log_probability))
    return element(
        "div", element("p", f"Its most probable program, with a probability of {share}:"), route_text(str(best.program))
    )


def policy_figure(frame: PolicyFrame, chosen: Route | None) -> Figure:
    """The map of one policy."""
    space = frame.policy.space
    grid = _Map(space, expected_actions(frame.policy))
    when = "before the first round" if frame.rounds == 0 else f"after round {frame.rounds}"
    label = f"How often the policy {when} moves where, layer by layer"
    shapes = joined(*grid.background(), *grid.cells(), *grid.taken(chosen))
    far = f" Moves farther than {_FARTHEST} layers are not drawn." if space.radius > _FARTHEST else ""
    legend = _legend(has_taken=bool(grid.taken(chosen)))
    return Figure("policy", f"The policy {when}", label, grid.width, grid.height, shapes, legend, _CAPTION + far)


class _Map:
    """Rows from the farthest move ahead down to the farthest back, then adds and rejoin; a column per layer."""

    def __init__(self, space: RouteSpace, actions: Floats) -> None:
        moves = moves_by_displacement(space, actions)
        reach = min(space.radius, _FARTHEST)
        self.space, self.reach = space, reach
        self.rows = [(_signed(delta), moves[:, delta + space.radius]) for delta in range(reach, -reach - 1, -1)]
        if space.window:
            self.rows.append(("with an add", actions[:, space.rejoin_action + 1 :].sum(axis=1)))
        self.rows.append(("RJ", actions[:, space.rejoin_action]))
        self.cell = max((_WIDTH - _LEFT - 8) / space.layers, _NARROWEST_CELL)
        self.width = _LEFT + self.cell * space.layers + 8
        self.height = self._y(len(self.rows)) + _BOTTOM

    def _x(self, layer: int) -> float:
        return _LEFT + self.cell * layer

    def _y(self, row: int) -> float:
        return _TOP + _ROW * row + (_GAP if row > 2 * self.reach else 0)

    def background(self) -> list[Markup]:
        parts = []
        wide = self.cell * self.space.layers
        for row, (name, _) in enumerate(self.rows):
            y = self._y(row)
            parts.append(element("rect", x=_LEFT, y=y, width=wide, height=_ROW - 1, class_="never", fill_opacity=0.5))
            style = "strong" if name == "+1" else None
            parts.append(element("text", name, x=_LEFT - 8, y=y + 12.5, text_anchor="end", class_=style))
        bottom = self._y(len(self.rows))
        for layer in ticks(0, self.space.layers - 1, 10):
            middle = self._x(layer) + self.cell / 2
            parts.append(element("text", f"L{layer}", x=middle, y=bottom + 14, text_anchor="middle"))
        centre = _LEFT + wide / 2
        return [*parts, element("text", "at layer", x=centre, y=bottom + 32, text_anchor="middle")]

    def cells(self) -> list[Markup]:
        """Frequent moves one by one, the others as one path per shade."""
        faint: dict[int, str] = {}
        parts = []
        for row, (name, values) in enumerate(self.rows):
            for layer in np.flatnonzero(values >= HEAT[0]).tolist():
                value, x, y = float(values[layer]), self._x(layer), self._y(row)
                level = bisect_right(HEAT, value)
                if value < _TOLD:
                    faint[level] = (
                        faint.get(level, "")
                        + f"M{x:.1f} {y:.0f}h{self.cell - 1:.1f}v{_ROW - 1:.0f}h-{self.cell - 1:.1f}z"
                    )
                    continue
                told = element("title", f"L{layer}, {name}: {value:.2f} times per program")
                size = {"width": self.cell - 1, "height": _ROW - 1}
                parts.append(element("rect", told, x=x, y=y, class_=f"h{level}", **size))
        return [*[element("path", d=path, class_=f"h{level}") for level, path in faint.items()], *parts]

    def taken(self, route: Route | None) -> list[Markup]:
        """What the chosen route does that is not the next layer."""
        if route is None:
            return []
        moves = dict.fromkeys((before.layer, step.layer - before.layer) for before, step in pairwise(route.steps))
        size = {"width": self.cell, "height": _ROW, "rx": 2}
        return [
            element("rect", x=self._x(layer) - 0.5, y=self._y(self.reach - delta) - 0.5, class_="taken", **size)
            for layer, delta in moves
            if delta != 1 and abs(delta) <= self.reach
        ]


def _signed(delta: int) -> str:
    return "0" if delta == 0 else f"{delta:+d}".replace("-", "−")


def _legend(*, has_taken: bool) -> tuple[Key, ...]:
    bounds = [*HEAT, math.inf]
    keys = []
    for level in (1, 3, 5, 7, 9):
        box = element("rect", x=1, y=0, width=26, height=12, class_=f"h{level}")
        keys.append((box, f"from {bounds[level - 1]:g}"))
    if has_taken:
        keys.append(
            (element("rect", x=2, y=1, width=24, height=10, rx=2, class_="taken"), "the chosen route goes there")
        )
    return tuple(keys)
