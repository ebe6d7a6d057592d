"""How often the programs of a policy make each move from each layer, computed exactly."""

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.space import RouteSpace
from macro_routing.search.policy import MarkovPolicy

Floats = NDArray[np.float64]


def count_expected_actions_by_layer(policy: MarkovPolicy) -> Floats:
    """How often a program drawn from the policy takes each action at each layer, ``[layer, action]``.

    All positions advance together, one layer application at a time. Rejoins sum to 1: every program ends once.
    """
    space = policy.space
    mass = np.zeros((space.layers, *space.table_shape[2:4]))
    mass[space.initial_position.layer, space.initial_position.displacement, space.initial_position.operator] = 1
    total = np.zeros((space.layers, space.action_count))
    for applied in range(1, space.max_length + 1):
        taken = np.einsum("ldo,ldoa->la", mass, np.exp(policy.masked_log_rows(applied)))
        total += taken
        mass = _propagate_probability(space, taken)
    return total


def _propagate_probability(space: RouteSpace, taken: Floats) -> Floats:
    """The probability mass after the moves; what rejoins is gone."""
    mass = np.zeros((space.layers, *space.table_shape[2:4]))
    layers, actions = np.nonzero(taken)
    stays = actions != space.rejoin_action
    layers, actions = layers[stays], actions[stays]
    displacement, operator = space.action_arrival_states[actions].T
    np.add.at(mass, (layers + space.action_displacements[actions], displacement, operator), taken[layers, actions])
    return mass


def sum_moves_by_displacement(space: RouteSpace, actions: Floats) -> Floats:
    """Moves and adds summed by where they lead, ``[layer, displacement from -r to r]``."""
    moves = np.zeros((space.layers, space.move_action_count))
    for number, delta in enumerate(space.action_displacements.tolist()):
        if number != space.rejoin_action:
            moves[:, delta + space.radius] += actions[:, number]
    return moves
