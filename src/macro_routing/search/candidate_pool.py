"""Which routes a guided search considers: edits of the standard pass and of the best routes, and the policy's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.edits import (
    Edit,
    count_edits,
    extract_edits,
    filter_moves,
    list_single_edits,
    program_from_edits,
)
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.top_k import decode_top_routes

_DECODED = 20
"""Most probable routes of the policy that are considered in every round."""
_MOST_EDITS = 6
"""Programs that leave the standard order more often are not considered: they score near zero."""


def single_moves(space: RouteSpace) -> list[Program]:
    """Every program with one move of its own; adds are too many to try one by one."""
    return _feasible(space, ([edit] for edit in filter_moves(space, list_single_edits(space))))


def edited(space: RouteSpace, incumbents: Sequence[Route], promising: Sequence[Route]) -> list[Program]:
    """Every incumbent with one edit less, one changed a little, and one more of those found in promising routes."""
    known = list(dict.fromkeys(edit for route in promising for edit in extract_edits(space, route)))
    every = set(list_single_edits(space))

    def variants() -> Iterable[list[Edit]]:
        for route in incumbents:
            own = extract_edits(space, route)
            for place, edit in enumerate(own):
                rest = own[:place] + own[place + 1 :]
                yield rest
                yield from (sorted([*rest, other]) for other in like(space, edit) if other in every)
            yield from (sorted([*own, edit]) for edit in known)

    return _feasible(space, variants())


def like(space: RouteSpace, edit: Edit) -> list[Edit]:
    """Edits one layer further or nearer, or one step wider or narrower."""
    wider = [
        Edit(edit.layer, other)
        for other in range(len(space.action_deltas))
        if abs(int(space.action_deltas[other]) - int(space.action_deltas[edit.action]))
        + abs(int(space.action_backs[other]) - int(space.action_backs[edit.action]))
        == 1
    ]
    return [Edit(edit.layer - 1, edit.action), Edit(edit.layer + 1, edit.action), *wider]


def written(policy: MarkovPolicy, count: int, rng: np.random.Generator) -> list[Program]:
    """The policy's most probable different routes, exactly, and some draws with few deviations."""
    decoded = [candidate.program for candidate in decode_top_routes(policy, _DECODED)]
    drawn = (policy.sample_program(rng) for _ in range(count))
    return [
        program
        for program in (*decoded, *drawn)
        if program is not None and count_edits(policy.space, program) <= _MOST_EDITS
    ]


def _feasible(space: RouteSpace, several: Iterable[Sequence[Edit]]) -> list[Program]:
    found = (program_from_edits(space, edits) for edits in several)
    return [program for program in found if program is not None]
