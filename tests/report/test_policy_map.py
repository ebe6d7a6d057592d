"""The policy's picture: exact frequencies, one frame per round, nothing that is not there."""

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from macro_routing.report.action_frequencies import count_expected_actions_by_layer, sum_moves_by_displacement
from macro_routing.report.policy_map import PolicyFrame, draw_policy_map, render_policy_maps
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.policy import MarkovPolicy

SPACES = [
    RouteSpace(layers=5, max_length=8, radius=2, window=2),
    RouteSpace(layers=4, max_length=6, radius=3, window=0, phase=False, displacement=False, operator=False),
    RouteSpace(layers=1),
]


@pytest.mark.parametrize("space", SPACES)
def test_expected_actions_are_those_of_many_draws(space):
    policy = MarkovPolicy.make_prior(space, 0.6, 0.2)
    expected = count_expected_actions_by_layer(policy)
    assert expected[:, space.rejoin_action].sum() == pytest.approx(1)
    rng = np.random.default_rng(3)
    draws = 4000
    counted = Counter()
    for _ in range(draws):
        position = space.initial_position
        for action in space.program_to_actions(policy.sample_program(rng)):
            counted[position.layer, action] += 1
            position = space.position_after_action(position, action) if action != space.rejoin_action else position
    for layer, action in np.ndindex(expected.shape):
        assert counted[layer, action] / draws == pytest.approx(expected[layer, action], abs=0.06)


def test_moves_are_summed_by_where_they_lead():
    space = SPACES[0]
    actions = count_expected_actions_by_layer(MarkovPolicy.make_prior(space))
    moves = sum_moves_by_displacement(space, actions)
    assert moves.shape == (5, 5)
    assert moves.sum() + actions[:, space.rejoin_action].sum() == pytest.approx(actions.sum())


def test_the_map_shows_a_policy_that_knows_one_program():
    space = SPACES[0]
    program = parse_program("L0 L1 L3(+h-1) L2-L4 RJ")
    policy = MarkovPolicy.make_prior(space).update_from_programs([program], [1.0], alpha=0.0)
    figure = draw_policy_map(PolicyFrame(3, policy), program.to_route(5))
    assert figure.title == "The policy after round 3"
    for told in ("L1, +2: 1.00", "L3, −1: 1.00", "L1, with an add: 1.00", "L4, RJ: 1.00"):
        assert f"{told} times per program" in figure.shapes, told
    assert figure.shapes.count('class="taken"') == 2  # the jump ahead and the jump back
    assert "the chosen route goes there" in figure.to_html()


def test_there_is_a_button_per_round_and_the_last_is_shown():
    policy = MarkovPolicy.make_prior(SPACES[0])
    maps = render_policy_maps([PolicyFrame(rounds, policy) for rounds in (0, 1, 2)], None)
    assert re.findall(r'<label for="policy-\d">(\w+)</label>', maps) == ["before", "1", "2"]
    assert re.findall(r'id="(policy-\d)" checked', maps) == ["policy-2"]
    assert maps.count("Its most probable route") == 3
    assert "taken" not in maps


def test_large_models_and_far_moves_stay_readable_and_small():
    space = RouteSpace(layers=80, radius=20)
    route = Route.standard(80)
    figure = draw_policy_map(PolicyFrame(1, MarkovPolicy.make_prior(space)), route)
    assert "farther than 12 layers are not drawn" in figure.caption
    assert len(figure.to_html()) < 60_000
    assert all(step.layer - before.layer == 1 for before, step in pairwise(route.steps))
