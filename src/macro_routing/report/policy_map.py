"""The policy as a heatmap over the layers, round by round."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from macro_routing.report.action_frequencies import Floats, count_expected_actions_by_layer, sum_moves_by_displacement
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.formatting import format_percent, format_signed
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale, list_integer_ticks
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
    return render_template("policy_maps.html", frames=[_make_policy_frame_fields(frame, chosen) for frame in frames])


def _make_policy_frame_fields(frame: PolicyFrame, chosen: Route | None) -> dict[str, Any]:
    best = decode_top_programs(frame.policy, 1)[0]
    assert best.log_probability is not None
    return {
        "name": frame.name,
        "figure": draw_policy_map(frame, chosen),
        "probability": format_percent(math.exp(best.log_probability)),
        "route": str(best.route),
    }


def draw_policy_map(frame: PolicyFrame, chosen: Route | None) -> Figure:
    """The map of one policy."""
    space = frame.policy.space
    reach = min(space.radius, _MAX_REACH)
    rows = list_policy_map_rows(space, count_expected_actions_by_layer(frame.policy), reach)
    cell = max((_WIDTH - _LEFT - 8) / space.layers, _MIN_CELL)
    x = Scale(0, space.layers, _LEFT, _LEFT + cell * space.layers)
    # Adds and rejoins are set apart from the moves.
    row_tops = [_TOP + _ROW * index + (_GAP if index > 2 * reach else 0) for index in range(len(rows) + 1)]
    jumps = [] if chosen is None else [jump for jump in _list_route_jumps(chosen) if abs(jump[1]) <= reach]
    when = "before the first round" if frame.rounds == 0 else f"after round {frame.rounds}"
    shapes = render_template(
        "policy_map.svg",
        x=x,
        cell=cell,
        row_height=_ROW,
        rows=list(zip(row_tops, [name for name, _ in rows], strict=False)),
        cells=list_nonempty_policy_cells(rows, x, row_tops),
        min_title=_MIN_TITLE,
        jumps=[(x(layer), row_tops[reach - delta]) for layer, delta in jumps],
        layer_ticks=list_integer_ticks(0, space.layers - 1, 10),
        bottom=row_tops[-1],
    )
    label = f"How often the policy {when} moves where, layer by layer"
    far = f" Moves farther than {_MAX_REACH} layers are not drawn." if space.radius > _MAX_REACH else ""
    legend = [LegendKey("bar", f"h{level}", f"from {HEAT_LEVELS[level - 1]:g}") for level in (1, 3, 5, 7, 9)]
    legend += [LegendKey("bar", "taken", "the chosen route goes there")] if jumps else []
    height = row_tops[-1] + _BOTTOM
    return Figure("policy", f"The policy {when}", label, x.end + 8, height, shapes, legend, _CAPTION + far)


def list_policy_map_rows(space: RouteSpace, actions: Floats, reach: int) -> list[tuple[str, Floats]]:
    """From the farthest move ahead down to the farthest back, then adds and rejoins: how often, by layer."""
    moves = sum_moves_by_displacement(space, actions)
    deltas = range(reach, -reach - 1, -1)
    rows = [(format_signed(delta, 0) if delta else "0", moves[:, delta + space.radius]) for delta in deltas]
    if space.window:
        rows.append(("with an add", actions[:, space.rejoin_action + 1 :].sum(axis=1)))
    return [*rows, ("RJ", actions[:, space.rejoin_action])]


def list_nonempty_policy_cells(
    rows: Sequence[tuple[str, Floats]], x: Scale, row_tops: Sequence[float]
) -> list[dict[str, Any]]:
    """The cells that are not empty."""
    return [
        {
            "x": x(layer),
            "y": top,
            "level": bisect_right(HEAT_LEVELS, values[layer]),
            "frequency": float(values[layer]),
            "title": f"L{layer}, {name}: {values[layer]:.2f} times per program",
        }
        for top, (name, values) in zip(row_tops, rows, strict=False)
        for layer in np.flatnonzero(values >= HEAT_LEVELS[0]).tolist()
    ]


def _list_route_jumps(route: Route) -> list[tuple[int, int]]:
    """The layers from which a route does not go to the next one, and how far it goes."""
    moves = dict.fromkeys((before.layer, step.layer - before.layer) for before, step in pairwise(route.steps))
    return [move for move in moves if move[1] != 1]
