"""Routes by the probability of all their programs, against plain enumeration."""

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.errors import SettingsError
from macro_routing.routes import RouteSpace
from macro_routing.search import MarkovPolicy, decode_top_routes
from macro_routing.search.top_k import decode_routes_by_total_probability
from tests.oracles import plain_decoding
from tests.strategies import policies, small_spaces


def plain_totals(policy):
    totals = defaultdict(list)
    for value, _, actions in plain_decoding.enumerate_programs(policy):
        totals[policy.space.program_from_actions(list(actions)).to_route(policy.space.layers)].append(value)
    return {route: math.log(math.fsum(map(math.exp, values))) for route, values in totals.items()}


@settings(max_examples=200, deadline=None)
@given(policies(small_spaces()), st.integers(1, 60))
def test_it_equals_enumeration(policy, k):
    totals = plain_totals(policy)
    decoded = decode_routes_by_total_probability(policy, k)
    assert [candidate.log_probability for candidate in decoded] == pytest.approx(
        sorted(totals.values(), reverse=True)[:k], abs=1e-7
    )
    assert len({candidate.route for candidate in decoded}) == len(decoded)
    for candidate in decoded:
        assert candidate.log_probability == pytest.approx(totals[candidate.route], abs=1e-7)
        assert candidate.program.to_route(policy.space.layers) == candidate.route
    assert [candidate.rank for candidate in decoded] == list(range(1, len(decoded) + 1))


def test_the_prior_of_a_real_size():
    policy = MarkovPolicy.make_prior(RouteSpace(28, max_length=40))
    summed = decode_routes_by_total_probability(policy, 20)
    assert summed[0].route.is_standard
    # Fifteen programs of the standard pass come before any other route; together they weigh more than each.
    assert summed[0].log_probability > decode_top_routes(policy, 1)[0].log_probability
    assert [candidate.log_probability for candidate in summed] == sorted(
        (candidate.log_probability for candidate in summed), reverse=True
    )
    with pytest.raises(SettingsError, match="k"):
        decode_routes_by_total_probability(policy, 0)
