"""Edits of the standard pass: programs that deviate from it once or a few times.

An edit is an action other than moving forward, taken after a layer. Written into the standard pass it is one deviation:
a repeat, a jump back (a repeated block), a skip, or an add.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import RouteSpace


class Edit(NamedTuple):
    """What is done after a layer, instead of moving on to the next."""

    layer: int
    action: int


def list_single_edits(space: RouteSpace) -> list[Edit]:
    """Every edit that the standard pass allows, by layer and then by action."""
    return [
        Edit(layer, int(action))
        for layer in range(space.layers)
        for action in np.flatnonzero(space.feasibility_mask[layer + 1, layer])
        if action not in (space.forward_action, space.rejoin_action)
    ]


def filter_moves(space: RouteSpace, edits: Sequence[Edit]) -> list[Edit]:
    """Those of some edits that only move."""
    return [edit for edit in edits if edit.action < space.move_count]


def filter_plain_adds(space: RouteSpace, edits: Sequence[Edit]) -> list[Edit]:
    """Those of some edits that add an earlier state and move on as the standard pass does."""
    return [edit for edit in edits if space.action_backs[edit.action] and space.action_deltas[edit.action] == 1]


def program_from_edits(space: RouteSpace, edits: Sequence[Edit]) -> Program | None:
    """The program that takes ``edits`` in turn, each when its layer is next reached by moving forward.

    None where an edit cannot be reached or is not feasible any more, as when a skip has jumped over its layer.
    """
    actions: list[int] = []
    position = space.start_position
    for edit in edits:
        while position.layer < edit.layer:
            if not space.feasibility_mask[position.applied, position.layer, space.forward_action]:
                return None
            actions.append(space.forward_action)
            position = space.next_position(position, space.forward_action)
        if position.layer != edit.layer or not space.feasibility_mask[position.applied, position.layer, edit.action]:
            return None
        actions.append(edit.action)
        position = space.next_position(position, edit.action)
    return space.program_from_actions(actions)


def count_edits(space: RouteSpace, program: Program) -> int:
    """Number of actions of a program that neither move forward nor rejoin."""
    return sum(
        action not in (space.forward_action, space.rejoin_action) for action in space.program_to_actions(program)
    )


def extract_edits(space: RouteSpace, route: Route) -> list[Edit]:
    """The edits in the order in which a route of the space takes them."""
    edits = []
    position = space.start_position
    for action in space.program_to_actions(space.route_to_program(route))[:-1]:
        if action != space.forward_action:
            edits.append(Edit(position.layer, action))
        position = space.next_position(position, action)
    return edits
