"""Edits of the standard pass: programs that deviate from it once or a few times, and variants of good routes.

An edit is an action other than moving forward, taken after a layer. Written into the standard pass it is one deviation:
a repeat, a jump back (a repeated block), a skip, or an add. The guided search chooses its routes from edited ones.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import RouteSpace


class ProgramEdit(NamedTuple):
    """What is done after a layer, instead of moving on to the next."""

    layer: int
    action: int


def list_edits_of_standard_pass(space: RouteSpace) -> list[ProgramEdit]:
    """Every edit that the standard pass allows, by layer and then by action."""
    return [
        ProgramEdit(layer, int(action))
        for layer in range(space.layers)
        for action in np.flatnonzero(space.feasibility_mask[layer + 1, layer])
        if action not in (space.forward_action, space.rejoin_action)
    ]


def list_edits_of_standard_pass_without_adds(space: RouteSpace) -> list[ProgramEdit]:
    """Those of the single edits that only move: a repeat, a jump back or a skip."""
    return [edit for edit in list_edits_of_standard_pass(space) if edit.action < space.move_action_count]


def list_single_moves(space: RouteSpace) -> list[tuple[Route, Program]]:
    """Every route with one move other than forward, and its program."""
    moves = list_edits_of_standard_pass_without_adds(space)
    programs = programs_from_edits(space, ([move] for move in moves))
    return [(program.to_route(space.layers), program) for program in programs]


def program_from_edits(space: RouteSpace, edits: Sequence[ProgramEdit]) -> Program | None:
    """The program that takes ``edits`` in turn, each when its layer is next reached by moving forward.

    None where an edit cannot be reached or is not feasible any more, as when a skip has jumped over its layer.
    """
    actions: list[int] = []
    position = space.initial_position
    for edit in edits:
        while position.layer < edit.layer:
            if not space.feasibility_mask[position.applied, position.layer, space.forward_action]:
                return None
            actions.append(space.forward_action)
            position = space.position_after_action(position, space.forward_action)
        if position.layer != edit.layer or not space.feasibility_mask[position.applied, position.layer, edit.action]:
            return None
        actions.append(edit.action)
        position = space.position_after_action(position, edit.action)
    return space.program_from_actions(actions)


def programs_from_edits(space: RouteSpace, edit_lists: Iterable[Sequence[ProgramEdit]]) -> list[Program]:
    """The programs of those of some edit lists that can be taken."""
    programs = (program_from_edits(space, edits) for edits in edit_lists)
    return [program for program in programs if program is not None]


def extract_program_edits(space: RouteSpace, program: Program) -> list[ProgramEdit]:
    """The edits in the order in which a program takes them: its actions other than moving forward and rejoining."""
    before_rejoin = space.list_program_actions_with_positions(program)[:-1]
    return [ProgramEdit(position.layer, action) for position, action in before_rejoin if action != space.forward_action]


def count_edits(space: RouteSpace, actions: Sequence[int]) -> int:
    """How many edits a program's actions before rejoining are."""
    return len(actions) - actions.count(space.forward_action)


def mutate_routes(space: RouteSpace, incumbents: Sequence[Route], promising: Sequence[Route]) -> list[Program]:
    """Every incumbent with one edit removed, one changed a little, or one added that a promising route has."""
    edits_by_route = {
        route: extract_program_edits(space, space.route_to_program(route)) for route in (*incumbents, *promising)
    }
    known = dict.fromkeys(edit for route in promising for edit in edits_by_route[route])
    allowed = set(list_edits_of_standard_pass(space))
    variants: list[list[ProgramEdit]] = []
    for route in incumbents:
        edits = edits_by_route[route]
        for index, edit in enumerate(edits):
            rest = edits[:index] + edits[index + 1 :]
            similar = [other for other in _list_similar_edits(space, edit) if other in allowed]
            variants += [rest, *(sorted([*rest, other]) for other in similar)]
        variants += [sorted([*edits, edit]) for edit in known]
    return programs_from_edits(space, variants)


def _list_similar_edits(space: RouteSpace, edit: ProgramEdit) -> list[ProgramEdit]:
    """The edit one layer earlier or later, or with a displacement or look-back that differs by one."""
    deltas, backs = space.action_displacements.tolist(), space.action_lookbacks.tolist()
    similar_actions = [
        ProgramEdit(edit.layer, action)
        for action in range(len(deltas))
        if abs(deltas[action] - deltas[edit.action]) + abs(backs[action] - backs[edit.action]) == 1
    ]
    return [ProgramEdit(edit.layer - 1, edit.action), ProgramEdit(edit.layer + 1, edit.action), *similar_actions]
