"""The Gaussian process against its textbook form, entry by entry."""

import math
from dataclasses import replace

import numpy as np
import pytest

from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import MarkovPolicy
from macro_routing.search.route_model import Features, RouteModel, Sizes, draw_best

SPACE = RouteSpace(8, max_length=12)
STANDARD = Route.standard(8)


def some_routes(count, seed=0):
    policy, rng = MarkovPolicy.prior(SPACE), np.random.default_rng(seed)
    found = {}
    while len(found) < count:
        route = policy.sample(rng).expand(8)
        if not route.is_standard:
            found[route] = None
    return list(found)


def plain_distance(one, other):
    """Layers applied more or less often, and adds that differ."""

    def read(route):
        times = [sum(step.layer == layer for step in route.steps) for layer in range(8)]
        adds = {(step.layer, step.add.back) for step in route.steps if step.add}
        return times, adds

    (times, adds), (others, other_adds) = read(one), read(other)
    cut = [min(4, a) for a in times], [min(4, b) for b in others]
    having = {layer for layer, _ in adds} ^ {layer for layer, _ in other_adds}
    return sum(abs(a - b) for a, b in zip(*cut, strict=True)) + 0.5 * len(adds ^ other_adds) + 0.5 * len(having)


def test_distance_counts_layers_and_adds():
    routes = [STANDARD, *some_routes(40)]
    features = Features.of(routes)
    found = features.distance(features)
    for row, one in enumerate(routes):
        for column, other in enumerate(routes):
            assert found[row, column] == pytest.approx(plain_distance(one, other)), (one, other)
    assert features.changed == pytest.approx(found[0])


def plain_posterior(known, gains, variances, wanted, sizes):
    """The textbook: k (K + V)^-1 y, with every covariance worked out by hand."""

    def covariance(one, other):
        features = Features.of([one, other])
        like = features.likeness(features)[0, 1]
        to_one, to_other = plain_distance(STANDARD, one), plain_distance(STANDARD, other)
        between = math.exp(-plain_distance(one, other) / sizes.reach)
        whole = between - math.exp(-to_one / sizes.reach) - math.exp(-to_other / sizes.reach) + 1
        return sizes.layer**2 * like + sizes.whole**2 * whole + sizes.damage**2 * to_one * to_other

    matrix = np.array([[covariance(a, b) for b in known] for a in known]) + np.diag(variances)
    across = np.array([[covariance(a, b) for b in wanted] for a in known])
    own = np.array([[covariance(a, b) for b in wanted] for a in wanted])
    solved = np.linalg.solve(matrix, across)
    return solved.T @ gains, own - across.T @ solved


def test_the_posterior_is_the_textbooks():
    routes = some_routes(30)
    rng = np.random.default_rng(1)
    gains, variances = rng.normal(0, 0.05, 20), rng.uniform(0.001, 0.01, 20)
    sizes = Sizes(0.03, 0.02, 3.0, 0.015)
    model = RouteModel.fit(Features.of(routes[:20]), gains, variances, begin=sizes, sweeps=0)
    mean, covariance = model.joint(Features.of(routes[20:]))
    expected, expected_covariance = plain_posterior(routes[:20], gains, variances, routes[20:], sizes)
    assert mean == pytest.approx(expected, abs=1e-9)
    assert covariance == pytest.approx(expected_covariance, abs=1e-9)
    assert model.mean(Features.of(routes[20:])) == pytest.approx(expected, abs=1e-9)


def test_the_standard_pass_gains_nothing_for_certain():
    routes = some_routes(10)
    model = RouteModel.fit(Features.of(routes), np.full(10, -0.1), np.full(10, 0.001), begin=Sizes())
    mean, covariance = model.joint(Features.of([STANDARD]))
    assert mean == pytest.approx([0.0])
    assert covariance == pytest.approx(np.zeros((1, 1)), abs=1e-12)


def test_sizes_follow_the_scores():
    """Effects of single layers, added up: the model should see that, and predict routes it never saw."""
    routes = some_routes(300)
    features = Features.of(routes)
    rng = np.random.default_rng(2)
    effects = rng.normal(0, 0.05, features.times.shape[1:])
    gains = (features.times * effects).sum(axis=(1, 2)) + rng.normal(0, 0.02, len(routes))
    variances = np.full(200, 0.02**2)
    first, rest = np.arange(200), np.arange(200, 300)
    model = RouteModel.fit(features[first], gains[:200], variances, begin=Sizes(), sweeps=4)
    assert model.sizes.layer > Sizes().layer
    assert np.corrcoef(model.mean(features[rest]), gains[200:])[0, 1] > 0.8
    worse = RouteModel.fit(features[first], gains[:200], variances, begin=replace(Sizes(), layer=1e-6), sweeps=0)
    assert (
        np.corrcoef(worse.mean(features[rest]), gains[200:])[0, 1]
        < np.corrcoef(model.mean(features[rest]), gains[200:])[0, 1]
    )


def test_draws_choose_each_route_as_often_as_it_may_be_best():
    mean, covariance = np.array([0.0, 0.1, -5.0]), np.diag([0.01, 0.01, 0.0001])
    rng = np.random.default_rng(0)
    first = [draw_best(mean, covariance, 1, 1, rng)[0] for _ in range(2000)]
    # Two normals a tenth apart, each with deviation 0.1: the second is larger with probability Φ(0.1 / 0.1414).
    assert np.mean([place == 1 for place in first]) == pytest.approx(0.76, abs=0.04)
    assert sorted(draw_best(mean, covariance, 50, 3, rng)) == [0, 1, 2]


def test_routes_that_look_back_far_are_no_error():
    wide = RouteSpace(12, window=12)
    route = parse_route("L0-L11 L11(+h-11) RJ", 12)
    wide.check(route)
    assert Features.of([route]).changed == pytest.approx([2.0])
