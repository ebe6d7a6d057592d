import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.errors import SettingsError
from macro_routing.routes import Route, RouteSpace
from macro_routing.search import (
    MarkovPolicy,
    decode_standard_and_top_routes,
    decode_top_programs,
    decode_top_routes,
    iterate_programs,
)
from tests.oracles import plain_decoding
from tests.strategies import policies, small_spaces

PAPER = RouteSpace(28, max_length=40)


@settings(max_examples=300, deadline=None)
@given(policies(small_spaces()), st.integers(1, 400))
def test_decoding_equals_enumeration(policy, k):
    every = plain_decoding.enumerate_programs(policy)
    expected = [policy.space.program_from_actions(list(actions)) for _, _, actions in plain_decoding.in_order(every)]
    decoded = list(itertools.islice(iterate_programs(policy), k))
    assert decoded == expected[:k]
    if k > len(expected):
        assert len(decoded) == len(expected)


@settings(max_examples=100, deadline=None)
@given(policies(small_spaces()), st.integers(1, 30))
def test_different_routes_equal_enumeration_with_ranks(policy, k):
    layers = policy.space.layers
    ordered = plain_decoding.in_order(plain_decoding.enumerate_programs(policy))
    ranks = {}
    for raw_rank, (_, _, actions) in enumerate(ordered, 1):
        ranks.setdefault(policy.space.program_from_actions(list(actions)).to_route(layers), raw_rank)
    expected = list(ranks.items())[:k]
    decoded = decode_top_routes(policy, k)
    assert [(candidate.route, candidate.raw_rank) for candidate in decoded] == expected
    assert [candidate.rank for candidate in decoded] == list(range(1, len(decoded) + 1))
    for candidate in decoded:
        assert candidate.program.to_route(layers) == candidate.route
        assert policy.log_probability(candidate.program) == candidate.log_probability


@settings(max_examples=200, deadline=None)
@given(policies(small_spaces()), st.integers(1, 60), st.integers(1, 9))
def test_a_limit_on_the_length_keeps_all_that_fit_in_the_same_order(policy, k, longest):
    ordered = plain_decoding.in_order(plain_decoding.enumerate_programs(policy))
    programs = [policy.space.program_from_actions(list(actions)) for _, _, actions in ordered]
    fitting = [program for program in programs if program.to_route(policy.space.layers).length <= longest]
    assert list(itertools.islice(iterate_programs(policy, longest), k)) == fitting[:k]
    routes = list(dict.fromkeys(program.to_route(policy.space.layers) for program in fitting))
    assert [candidate.route for candidate in decode_top_routes(policy, k, longest)] == routes[:k]


def test_one_policy_gives_the_best_routes_of_every_depth():
    policy = MarkovPolicy.make_prior(PAPER)
    assert [decode_top_routes(policy, 3, longest)[0].route.length for longest in (25, 28, 30, 35)] == [25, 28, 28, 28]
    assert all(candidate.route.length <= 25 for candidate in decode_top_routes(policy, 50, 25))
    with pytest.raises(SettingsError, match="max_length"):
        decode_top_routes(policy, 3, 0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_decoding_equals_the_memoised_recursion_where_enumeration_is_hopeless(seed):
    space = RouteSpace(7, max_length=10, radius=2, window=2)
    table = np.random.default_rng(seed).dirichlet(np.full(space.action_count, 0.2), size=space.table_shape[:-1])
    policy = MarkovPolicy(space, table)
    expected = plain_decoding.recursive_top_k(policy, 12)
    decoded = list(itertools.islice(iterate_programs(policy), 12))
    assert decoded == [space.program_from_actions(list(actions)) for _, _, actions in expected]


def test_the_prior_begins_with_the_standard_pass_fifteen_times():
    routes = [
        program.to_route(28) for program in itertools.islice(iterate_programs(MarkovPolicy.make_prior(PAPER)), 16)
    ]
    assert all(route.is_standard for route in routes[:15])
    assert not routes[15].is_standard


def test_raw_drops_duplicates_after_k():
    assert [candidate.route for candidate in decode_top_programs(MarkovPolicy.make_prior(PAPER), 5)] == [
        Route.standard(28)
    ]
    different = decode_top_routes(MarkovPolicy.make_prior(PAPER), 5)
    assert len({candidate.route for candidate in different}) == 5
    assert different[1].raw_rank == 16


def test_anchored_is_standard_and_the_best_others():
    policy = MarkovPolicy.make_prior(PAPER)
    anchored = decode_standard_and_top_routes(policy, 5)
    assert anchored[0].route.is_standard
    assert [candidate.route for candidate in anchored] == [
        candidate.route for candidate in decode_top_routes(policy, 5)
    ]


def test_anchored_has_the_standard_pass_even_when_the_policy_cannot_write_it():
    space = RouteSpace(3, max_length=5, radius=1, window=0)
    table = np.zeros(space.table_shape)
    table[..., space.radius] = 0.5  # repeat
    table[..., space.rejoin_action] = 0.5
    table[0, :, -1] = np.eye(space.action_count)[space.radius]  # the first move is always a repeat
    anchored = decode_standard_and_top_routes(MarkovPolicy(space, table), 3)
    assert anchored[0].route.is_standard
    assert anchored[0].raw_rank is None
    assert not any(candidate.route.is_standard for candidate in anchored[1:])


@pytest.mark.parametrize("decode", [decode_top_programs, decode_top_routes, decode_standard_and_top_routes])
def test_k_below_one_is_rejected(decode):
    with pytest.raises(SettingsError, match="k = 0"):
        decode(MarkovPolicy.make_prior(PAPER), 0)


def test_ties_by_the_million_cost_nothing():
    """At every layer plain and added steps are equally probable: 2^25 programs tie, and the plain one is first."""
    table = np.zeros(PAPER.table_shape)
    table[..., PAPER.forward_action] = 0.5
    table[..., PAPER.move_action_count + 1 + PAPER.forward_action] = 0.5  # add h-1, then the next layer
    table[PAPER.layers - 1] = np.eye(PAPER.action_count)[PAPER.rejoin_action]
    start = time.process_time()
    first, second = itertools.islice(iterate_programs(MarkovPolicy(PAPER, table)), 2)
    assert time.process_time() - start < 5
    assert str(first) == "L0-L27 RJ"
    assert str(second) == "L0-L26 L27(+h-1) RJ"


def test_long_routes_do_not_exhaust_the_stack():
    space = RouteSpace(300, max_length=1500, radius=1, window=0, phase=False)
    table = np.zeros(space.table_shape)
    table[..., space.forward_action] = 0.5
    table[..., space.radius] = 0.5
    table[space.layers - 1] = np.eye(space.action_count)[space.rejoin_action]
    assert len(decode_top_programs(MarkovPolicy(space, table), 3)) == 3
