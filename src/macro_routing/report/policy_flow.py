"""What a policy does: how often its programs make each move from each layer, worked out exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.space import RouteSpace
from macro_routing.search.policy import MarkovPolicy

Floats = NDArray[np.float64]


def expected_actions(policy: MarkovPolicy) -> Floats:
    """How often a program drawn from the policy takes each action at each layer, ``[layer, action]``.

    All positions go forward together, one application at a time; the rejoins sum to 1, since every program ends once.
    """
    space = policy.space
    mass = np.zeros((space.layers, *space.table_shape[2:4]))
    mass[space.start_position.layer, space.start_position.displacement, space.start_position.operator] = 1
    total = np.zeros((space.layers, space.action_count))
    for applied in range(1, space.max_length + 1):
        taken = np.einsum("ldo,ldoa->la", mass, np.exp(policy.log_rows(applied)))
        total += taken
        mass = _arrived(space, taken)
    return total


def _arrived(space: RouteSpace, taken: Floats) -> Floats:
    """Where the moves lead; what rejoins is gone."""
    mass = np.zeros((space.layers, *space.table_shape[2:4]))
    layers, actions = np.nonzero(taken)
    going = actions != space.rejoin_action
    layers, actions = layers[going], actions[going]
    displacement, operator = space.action_arrivals[actions].T
    np.add.at(mass, (layers + space.action_deltas[actions], displacement, operator), taken[layers, actions])
    return mass


def moves_by_displacement(space: RouteSpace, actions: Floats) -> Floats:
    """Moves and adds summed by where they lead, ``[layer, displacement from -r to r]``."""
    found = np.zeros((space.layers, space.move_count))
    for number, delta in enumerate(space.action_deltas.tolist()):
        if number != space.rejoin_action:
            found[:, delta + space.radius] += actions[:, number]
    return found
