"""The plan of a prefix tree, replayed step by step with symbols in place of hidden states."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.engine.prefix_tree import EMBEDDINGS, plan_prefix_tree, plan_prefix_trees
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search.policy import MarkovPolicy


def _sample_routes(layers, count, seed):
    policy = MarkovPolicy.make_prior(RouteSpace(layers, max_length=layers + 8), 0.5, 0.3)
    rng = np.random.default_rng(seed)
    return list(dict.fromkeys(policy.sample_program(rng).to_route(layers) for _ in range(count)))


def _replay_plan(plan):
    """What every route's end state is made of; fails when a state is read after it was freed."""
    states, ends, path = {EMBEDDINGS: ()}, {}, [EMBEDDINGS]
    for application in plan.applications:
        before = states[application.source]
        extra = None if application.added_state is None else (states[application.added_state], application.add)
        states[application.state] = (*before, (application.layer, extra))
        del path[path.index(application.source) + 1 :]  # depth first: the source is on the path to the last state
        path.append(application.state)
        for index in application.finished_routes:
            ends[index] = states[application.state]
        for state in application.freed_states:
            del states[state]
    assert not states
    return ends


def _replay_route(route):
    states = [()]
    for step in route.steps:
        extra = None if step.add is None else (states[len(states) - 1 - step.add.back], step.add)
        states.append((*states[-1], (step.layer, extra)))
    return states[-1]


@given(layers=st.integers(2, 12), count=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_every_route_is_complete_and_no_step_is_computed_twice(layers, count, seed):
    routes = _sample_routes(layers, count, seed)
    plan = plan_prefix_tree(routes)
    assert _replay_plan(plan) == {index: _replay_route(route) for index, route in enumerate(routes)}
    prefixes = {route.steps[:length] for route in routes for length in range(1, route.length + 1)}
    assert len(plan.applications) == len(prefixes)


@given(count=st.integers(1, 40), seed=st.integers(0, 10**6), max_states=st.integers(1, 6))
def test_groups_stay_within_the_limit_of_states(count, seed, max_states):
    routes = _sample_routes(10, count, seed)
    plans = plan_prefix_trees(routes, max_states)
    assert sorted(map(str, routes)) == sorted(str(route) for plan in plans for route in plan.routes)
    assert all(plan.max_live_states <= max_states or len(plan.routes) == 1 for plan in plans)
    for plan in plans:
        assert len(_replay_plan(plan)) == len(plan.routes)


def test_many_routes_need_few_live_states():
    plan = plan_prefix_tree(_sample_routes(28, 300, 1))
    assert plan.max_live_states <= 20


def test_a_route_may_be_a_prefix_of_another():
    short, long = parse_route("L0-L3", 6), Route.standard(6)
    plan = plan_prefix_tree([long, short])
    assert len(plan.applications) == 6
    assert plan.sharing_factor == pytest.approx(10 / 6)
    assert set(_replay_plan(plan)) == {0, 1}
