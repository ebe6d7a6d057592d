"""The routes that the guided search chooses from: edited routes and samples of the policy."""

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

_N_DECODED = 20
"""Number of most probable routes of the policy in every round's pool."""
_MAX_EDITS = 6
"""Sampled programs with more edits are left out: they score near zero."""


def list_single_moves(space: RouteSpace) -> list[Program]:
    """Every program with one move other than forward; single adds are too many."""
    return _build_programs(space, ([edit] for edit in filter_moves(space, list_single_edits(space))))


def mutate_routes(space: RouteSpace, incumbents: Sequence[Route], promising: Sequence[Route]) -> list[Program]:
    """Every incumbent with one edit removed, one changed a little, or one added that a promising route has."""
    known = list(dict.fromkeys(edit for route in promising for edit in extract_edits(space, route)))
    allowed = set(list_single_edits(space))

    def list_variants() -> Iterable[list[Edit]]:
        for route in incumbents:
            edits = extract_edits(space, route)
            for index, edit in enumerate(edits):
                rest = edits[:index] + edits[index + 1 :]
                yield rest
                yield from (sorted([*rest, other]) for other in similar_edits(space, edit) if other in allowed)
            yield from (sorted([*edits, edit]) for edit in known)

    return _build_programs(space, list_variants())


def similar_edits(space: RouteSpace, edit: Edit) -> list[Edit]:
    """The edit one layer earlier or later, or with a displacement or look-back that differs by one."""
    deltas, backs = space.action_deltas.tolist(), space.action_backs.tolist()
    similar_actions = [
        Edit(edit.layer, action)
        for action in range(len(deltas))
        if abs(deltas[action] - deltas[edit.action]) + abs(backs[action] - backs[edit.action]) == 1
    ]
    return [Edit(edit.layer - 1, edit.action), Edit(edit.layer + 1, edit.action), *similar_actions]


def sample_programs(policy: MarkovPolicy, count: int, rng: np.random.Generator) -> list[Program]:
    """The policy's most probable different routes and ``count`` samples, those with few edits."""
    decoded = [candidate.program for candidate in decode_top_routes(policy, _N_DECODED)]
    sampled = (policy.sample_program(rng) for _ in range(count))
    return [
        program
        for program in (*decoded, *sampled)
        if program is not None and count_edits(policy.space, program) <= _MAX_EDITS
    ]


def _build_programs(space: RouteSpace, edit_lists: Iterable[Sequence[Edit]]) -> list[Program]:
    programs = (program_from_edits(space, edits) for edits in edit_lists)
    return [program for program in programs if program is not None]
