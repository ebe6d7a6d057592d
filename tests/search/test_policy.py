import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from macro_routing.errors import SearchError, SettingsError
from macro_routing.routes import RouteSpace, parse_program
from macro_routing.search import MarkovPolicy
from tests.oracles import plain_decoding
from tests.strategies import policies, small_spaces

PAPER = RouteSpace(28, max_length=40)


def test_prior_is_the_papers():
    row = MarkovPolicy.make_prior(PAPER).table[5, 0, 0, 0]
    assert row[PAPER.forward_action] == pytest.approx(1 - 0.2 - 0.0867 + 0.2 / 12)
    assert row[PAPER.rejoin_action] == pytest.approx(0.2 / 12)
    assert row[0] == pytest.approx(0.2 / 12)
    assert row[-1] == pytest.approx(0.0867 / 66)
    last = MarkovPolicy.make_prior(PAPER).table[27]
    assert (last[..., PAPER.rejoin_action] == 1).all()
    assert last.sum() == last[..., PAPER.rejoin_action].sum()


def test_without_adds_their_mass_goes_forward():
    space = RouteSpace(28, max_length=40, window=0)
    row = MarkovPolicy.make_prior(space).table[5, 0, 0, 0]
    assert row[space.forward_action] == pytest.approx(1 - 0.2 + 0.2 / 12)
    assert len(row) == 12


@given(policies(small_spaces()))
def test_programs_have_the_plainly_computed_probabilities_and_they_sum_to_one(policy):
    programs = plain_decoding.enumerate_programs(policy)
    assert math.fsum(math.exp(value) for value, _, _ in programs) == pytest.approx(1)
    for value, length, actions in programs[:200]:
        program = policy.space.program_from_actions(list(actions))
        assert policy.log_probability(program) == pytest.approx(value, abs=1e-9)
        assert program.to_route(policy.space.layers).length == length


@given(policies(small_spaces()))
def test_one_row_and_all_rows_are_the_same_numbers(policy):
    space = policy.space
    for applied in range(1, space.max_length + 1):
        rows = policy.masked_log_rows(applied)
        position = space.initial_position._replace(applied=applied)
        row = policy.masked_log_row(position)
        assert (rows[position.layer, position.displacement, position.operator] == row).all()
        assert math.fsum(np.exp(row)) == pytest.approx(1)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
def test_draws_come_as_often_as_their_probability_says(temperature):
    space = RouteSpace(3, max_length=4, radius=1, window=1)
    policy = MarkovPolicy.make_prior(space, 0.5, 0.3)
    rng = np.random.default_rng(7)
    draws = 40_000
    counts = Counter(policy.sample_program(rng, temperature) for _ in range(draws))
    expected = _tempered(policy, temperature)
    assert set(counts) <= set(expected)
    for program, probability in expected.items():
        deviation = math.sqrt(draws * probability * (1 - probability))
        assert abs(counts[program] - draws * probability) < 5 * deviation + 1


def _tempered(policy, temperature):
    """Probability of every program when each masked row is raised to 1/τ and renormalised."""
    shares = {}

    def walk(n, layer, previous, added, probability, written):
        options = plain_decoding.row(policy, n, layer, previous, added)
        total = sum(value ** (1 / temperature) for _, _, value in options)
        for number, action, value in options:
            share = probability * value ** (1 / temperature) / total
            if action[0] == "rejoin":
                shares[policy.space.program_from_actions([*written, number])] = share
            else:
                walk(n + 1, layer + action[-1], layer, action[0] == "add", share, [*written, number])

    walk(1, 0, None, False, 1.0, [])
    return shares


def test_only_visited_states_change_and_as_the_paper_says():
    policy = MarkovPolicy.make_prior(PAPER)
    program = parse_program("L0 L2 RJ")
    updated = policy.update_from_programs([program], [1.0], alpha=0.0397)
    first = PAPER.state_index(PAPER.initial_position)
    second = PAPER.state_index(PAPER.position_after_action(PAPER.initial_position, PAPER.forward_action + 1))
    for state, action in ((first, PAPER.forward_action + 1), (second, PAPER.rejoin_action)):
        expected = 0.0397 * policy.table[state]
        expected[action] += 1
        assert updated.table[state] == pytest.approx(expected / expected.sum())
    changed = (updated.table != policy.table).any(axis=-1)
    assert changed.sum() == 2
    assert changed[first]
    assert changed[second]


def test_weights_and_repeated_draws_count():
    policy = MarkovPolicy.make_prior(PAPER)
    programs = [parse_program("L0 RJ"), parse_program("L0 RJ"), parse_program("L0 L1 RJ")]
    row = policy.update_from_programs(programs, [0.25, 0.25, 0.5], alpha=0.0).table[
        PAPER.state_index(PAPER.initial_position)
    ]
    assert row[PAPER.rejoin_action] == pytest.approx(0.5)
    assert row[PAPER.forward_action] == pytest.approx(0.5)


def test_a_program_may_visit_a_state_twice():
    space = RouteSpace(4, max_length=10, phase=False, displacement=False)
    state = space.state_index(space.initial_position)
    row = (
        MarkovPolicy.make_prior(space)
        .update_from_programs([parse_program("L0 L0 L0 RJ")], [1.0], alpha=0.0)
        .table[state]
    )
    assert row[space.radius] == pytest.approx(2 / 3)
    assert row[space.rejoin_action] == pytest.approx(1 / 3)


def test_smoothing_moves_part_of_the_way():
    policy = MarkovPolicy.make_prior(PAPER)
    program, state = parse_program("L0 RJ"), PAPER.state_index(PAPER.initial_position)
    full = policy.update_from_programs([program], [1.0], alpha=0.1)
    half = policy.update_from_programs([program], [1.0], alpha=0.1, smoothing=0.5)
    assert half.table[state] == pytest.approx((full.table[state] + policy.table[state]) / 2)


@settings(max_examples=50)
@given(policies(small_spaces()))
def test_updates_of_any_policy_stay_policies(policy):
    rng = np.random.default_rng(0)
    programs = [policy.sample_program(rng) for _ in range(3)]
    updated = policy.update_from_programs(programs, [0.5, 0.3, 0.2], alpha=0.05, smoothing=0.7)
    assert updated.table.sum(axis=-1) == pytest.approx(np.ones(policy.space.table_shape[:-1]))


def test_where_masking_leaves_nothing_the_route_rejoins():
    space = RouteSpace(3, max_length=4, radius=1, window=1)
    table = np.zeros(space.table_shape)
    table[..., -1] = 1.0  # only an add, which the first position cannot make
    policy = MarkovPolicy(space, table)
    assert policy.sample_program(np.random.default_rng(0)) == parse_program("L0 RJ")
    assert policy.log_probability(parse_program("L0 RJ")) == 0.0


def test_tables_are_read_only_and_checked():
    policy = MarkovPolicy.make_prior(PAPER)
    with pytest.raises(ValueError, match="read-only"):
        policy.table[0] = 1
    with pytest.raises(SearchError, match="shape"):
        MarkovPolicy(PAPER, np.ones((2, 2)))
    with pytest.raises(SearchError, match="sum to 1"):
        MarkovPolicy(PAPER, np.ones(PAPER.table_shape))


def test_epsilons_above_one_are_rejected_by_name():
    with pytest.raises(SettingsError, match=r"epsilon_local \+ epsilon_operator = 1.2"):
        MarkovPolicy.make_prior(PAPER, 0.7, 0.5)
