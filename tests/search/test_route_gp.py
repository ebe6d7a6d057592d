"""The Gaussian process against its textbook form, entry by entry."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import MarkovPolicy
from macro_routing.search.route_gp import (
    KERNELS,
    GPKernelParameters,
    ObservedAccuracies,
    RouteFeatures,
    RouteGP,
    log_marginal_likelihood,
    thompson_sample,
)

SPACE = RouteSpace(8, max_length=12)
STANDARD = Route.standard(8)


def some_routes(count, seed=0):
    policy, rng = MarkovPolicy.make_prior(SPACE), np.random.default_rng(seed)
    routes = {}
    while len(routes) < count:
        route = policy.sample_program(rng).to_route(8)
        if not route.is_standard:
            routes[route] = None
    return list(routes)


def plain_distance(one, other):
    """Layers applied more or less often, adds that differ, and jumps that differ."""

    def read(route):
        times = [min(4, sum(step.layer == layer for step in route.steps)) for layer in range(8)]
        adds = {(step.layer, step.add.back) for step in route.steps if step.add}
        places = [-1, *(step.layer for step in route.steps)]
        jumps = {(max(before, 0), after - before - 1) for before, after in itertools.pairwise(places)}
        return times, adds, {(layer, width) for layer, width in jumps if width}

    (times, adds, jumps), (others, other_adds, other_jumps) = read(one), read(other)
    having = {layer for layer, _ in adds} ^ {layer for layer, _ in other_adds}
    more = sum(abs(a - b) for a, b in zip(times, others, strict=True))
    return more + 0.5 * len(adds ^ other_adds) + 0.5 * len(having) + 0.5 * len(jumps ^ other_jumps)


def test_distance_counts_layers_jumps_and_adds():
    routes = [STANDARD, *some_routes(40)]
    features = RouteFeatures.from_routes(routes)
    distances = features.compute_kernel_terms(features).edit_distances
    for row, one in enumerate(routes):
        for column, other in enumerate(routes):
            assert distances[row, column] == pytest.approx(plain_distance(one, other)), (one, other)
    assert features.num_edits_by_route == pytest.approx(distances[0])


def test_the_same_layers_in_another_order_are_another_route():
    block, each = (parse_route(text, 8) for text in ("L0-L4 L3 L4 RJ", "L0-L3 L3 L4 L4 RJ"))
    features = RouteFeatures.from_routes([block, each])
    assert (features.applications[0] == features.applications[1]).all()
    assert features.compute_kernel_terms(features).edit_distances[0, 1] == pytest.approx(1.5)  # one jump against two
    assert features.compute_kernel_terms(features).shared_jumps[0, 0] == pytest.approx(1, abs=1e-6)
    assert 0 < features.compute_kernel_terms(features).shared_jumps[0, 1] < 1


def some_scores(routes, seed=1, rows=60):
    """Routes scored in several rounds, some often, each at least once."""
    rng = np.random.default_rng(seed)
    where = np.concatenate([np.arange(len(routes)), rng.integers(0, len(routes), rows - len(routes))])
    when, examples = rng.integers(0, 4, rows), rng.integers(10, 50, rows).astype(float)
    return ObservedAccuracies(RouteFeatures.from_routes(routes), where, when, rng.uniform(0.2, 0.8, rows), examples)


def plain_covariance(one, other, parameters):
    """Every part worked out by hand."""
    features = RouteFeatures.from_routes([one, other])
    terms = features.compute_kernel_terms(features)
    layers, jumps = terms.shared_layers[0, 1], terms.shared_jumps[0, 1]
    to_one, to_other = plain_distance(STANDARD, one), plain_distance(STANDARD, other)
    between = math.exp(-plain_distance(one, other) / parameters.length_scale)
    similarity = (
        between - math.exp(-to_one / parameters.length_scale) - math.exp(-to_other / parameters.length_scale) + 1
    )
    linear = (
        parameters.layer_effect**2 * layers
        + parameters.jump_effect**2 * jumps
        + parameters.edit_penalty**2 * to_one * to_other
    )
    nugget = parameters.nugget**2 if one == other != STANDARD else 0.0
    return linear + parameters.similarity**2 * similarity + nugget


def plain_rows(routes, scores, parameters):
    """Covariance of the rows, one by one: gains, a common level, the rounds' own, what examples share, and noise."""
    gains = np.array([[plain_covariance(a, b, parameters) for b in routes] for a in routes])
    expected = gains[scores.route_index[:, None], scores.route_index] + 0.25
    for row in range(len(expected)):
        for column in range(len(expected)):
            if scores.round_index[row] == scores.round_index[column]:
                one, other = routes[scores.route_index[row]], routes[scores.route_index[column]]
                apart = (plain_distance(a, b) for a, b in ((one, other), (one, STANDARD), (other, STANDARD)))
                between, first, second = (math.exp(-steps / 6) for steps in apart)
                shared = parameters.example_effect**2 * (1 + between - first - second) / 2
                expected[row, column] += parameters.round_effect**2
                expected[row, column] += shared / math.sqrt(scores.examples[row] * scores.examples[column])
    return expected + np.diag(parameters.noise * scores.binomial_variance)


PARAMETERS = GPKernelParameters(0.03, 0.02, 0.04, 3.0, 0.02, 0.015, 0.03, 0.25, 0.8)


def test_the_posterior_is_the_textbooks():
    routes = [STANDARD, *some_routes(30)]
    known, wanted = routes[:20], routes[15:]  # some of them were scored
    scores = some_scores(known)
    matrix = plain_rows(known, scores, PARAMETERS)
    across = np.array([[plain_covariance(a, b, PARAMETERS) for b in wanted] for a in known])[scores.route_index]
    prior = np.array([[plain_covariance(a, b, PARAMETERS) for b in wanted] for a in wanted])
    centred = scores.accuracy - np.average(scores.accuracy, weights=scores.examples)
    solved = np.linalg.solve(matrix, across)
    model = RouteGP.fit(scores, start=PARAMETERS, sweeps=0)
    mean, covariance = model.predict_gain_covariance(RouteFeatures.from_routes(wanted))
    assert mean == pytest.approx(solved.T @ centred, abs=1e-9)
    assert covariance == pytest.approx(prior - across.T @ solved, abs=1e-9)
    assert model.predict_mean(RouteFeatures.from_routes(wanted)) == pytest.approx(mean, abs=1e-9)


def test_the_evidence_is_the_textbooks():
    routes = [STANDARD, *some_routes(20)]
    scores = some_scores(routes)
    centred = scores.accuracy - np.average(scores.accuracy, weights=scores.examples)

    def plain(parameters):
        matrix = plain_rows(routes, scores, parameters)
        strange = sum(
            math.log(getattr(parameters, n) / getattr(GPKernelParameters(), n)) ** 2 for n in vars(parameters)
        ) / (2 * 1.2**2)
        return -0.5 * (centred @ np.linalg.solve(matrix, centred) + np.linalg.slogdet(matrix)[1]) - strange

    for parameters in (PARAMETERS, GPKernelParameters(), replace(PARAMETERS, noise=0.3, round_effect=0.1)):
        assert log_marginal_likelihood(parameters, scores) == pytest.approx(plain(parameters), abs=1e-6)


def test_a_round_that_is_easier_for_all_moves_no_gain():
    routes = [STANDARD, *some_routes(10)]
    where, when = np.tile(np.arange(11), 2), np.repeat([0, 1], 11)
    rng = np.random.default_rng(5)
    accuracy = 0.5 + np.tile(rng.normal(0, 0.05, 11), 2)
    features = RouteFeatures.from_routes(routes)
    even, easier = (
        RouteGP.fit(
            ObservedAccuracies(features, where, when, accuracy + shift * (when == 1), np.full(22, 400.0)),
            start=replace(GPKernelParameters(), round_effect=0.3),
            sweeps=0,
        ).predict_mean(features)
        for shift in (0.0, 0.1)
    )
    assert easier == pytest.approx(even, abs=2e-3)


def test_like_routes_on_the_same_examples_are_no_independent_evidence():
    """Six near copies of a route that all lead in one round tell less when routes share their examples' luck."""
    copies = [parse_route(f"L0-L4 L4{'(+h-2)' * (n % 2)} L5-L{5 + n % 3} L{5 + n % 3} RJ", 8) for n in range(6)]
    features = RouteFeatures.from_routes([STANDARD, *copies])
    where = np.arange(7)
    scores = ObservedAccuracies(features, where, np.zeros(7, dtype=int), np.array([0.5, *[0.6] * 6]), np.full(7, 50.0))
    alone, together = (
        RouteGP.fit(scores, start=replace(GPKernelParameters(), example_effect=size), sweeps=0) for size in (1e-6, 0.5)
    )
    (mean, covariance), (less, wider) = (
        model.predict_gain_covariance(features[where[1:2]]) for model in (alone, together)
    )
    assert less[0] < mean[0]
    assert wider[0, 0] > covariance[0, 0]


def test_the_standard_pass_gains_nothing_for_certain():
    model = RouteGP.fit(some_scores([STANDARD, *some_routes(10)]), start=GPKernelParameters())
    mean, covariance = model.predict_gain_covariance(RouteFeatures.from_routes([STANDARD]))
    assert mean == pytest.approx([0.0])
    assert covariance == pytest.approx(np.zeros((1, 1)), abs=1e-12)


def test_parameters_follow_the_scores():
    """Effects of single layers, added up: the model should see that, and predict routes it never saw."""
    routes = [STANDARD, *some_routes(300)]
    features = RouteFeatures.from_routes(routes)
    rng = np.random.default_rng(2)
    effects = rng.normal(0, 0.05, features.applications.shape[1:])
    gains = (features.applications * effects).sum(axis=(1, 2))
    first, rest = np.arange(200), np.arange(200, 301)
    accuracy = 0.5 + gains[first] + rng.normal(0, 0.02, 200)
    scores = ObservedAccuracies(features[first], first, np.zeros(200, dtype=int), accuracy, np.full(200, 600.0))
    model = RouteGP.fit(scores, start=GPKernelParameters(), sweeps=4)
    assert model.parameters.layer_effect > GPKernelParameters().layer_effect
    assert np.corrcoef(model.predict_mean(features[rest]), gains[rest])[0, 1] > 0.8
    worse = RouteGP.fit(scores, start=replace(GPKernelParameters(), layer_effect=1e-6, jump_effect=1e-6), sweeps=0)
    assert (
        np.corrcoef(worse.predict_mean(features[rest]), gains[rest])[0, 1]
        < np.corrcoef(model.predict_mean(features[rest]), gains[rest])[0, 1]
    )


def test_parameters_that_have_shrunk_grow_again():
    routes = [STANDARD, *some_routes(100)]
    features = RouteFeatures.from_routes(routes)
    gains = 0.2 * features.applications[:, 1].max(axis=1)
    scores = ObservedAccuracies(features, np.arange(101), np.zeros(101, dtype=int), 0.3 + gains, np.full(101, 100.0))
    shrunk = GPKernelParameters(1e-4, 1e-4, 1e-3, 2.0, 1e-3, 1e-4, 1e-3, 0.2, 0.4)
    model = RouteGP.fit(scores, start=shrunk, sweeps=1)
    assert model.parameters.similarity > 0.01
    assert np.corrcoef(model.predict_mean(features), gains)[0, 1] > 0.9


def test_draws_choose_each_route_as_often_as_it_may_be_best():
    mean, covariance = np.array([0.0, 0.1, -5.0]), np.diag([0.01, 0.01, 0.0001])
    rng = np.random.default_rng(0)
    first = [thompson_sample(mean, covariance, 1, 1, rng)[0] for _ in range(2000)]
    # Two normals a tenth apart, each with deviation 0.1: the second is larger with probability Φ(0.1 / 0.1414).
    assert np.mean([index == 1 for index in first]) == pytest.approx(0.76, abs=0.04)
    assert sorted(thompson_sample(mean, covariance, 50, 3, rng)) == [0, 1, 2]


def test_a_subtraction_is_the_opposite_of_an_addition():
    plus, minus, none = (parse_route(text, 8) for text in ("L0-L4 L5(+h-2) RJ", "L0-L4 L5(-h-2) RJ", "L0 RJ"))
    features = RouteFeatures.from_routes([plus, minus, none])
    terms = features.compute_kernel_terms(features)
    assert terms.shared_layers[0, 1] < 0 < terms.shared_layers[0, 0]
    assert terms.edit_distances[0, 1] > terms.edit_distances[0, 2] > 0


def test_alone_routes_tell_nothing_about_each_other():
    routes = [STANDARD, *some_routes(30)]
    scores = some_scores(routes[:20])
    model = RouteGP.fit(scores, start=KERNELS["independent"], sweeps=3)
    mean, covariance = model.predict_gain_covariance(RouteFeatures.from_routes(routes[20:]))
    assert mean == pytest.approx(np.zeros(11), abs=1e-12)
    assert covariance == pytest.approx(np.diag(np.diag(covariance)), abs=1e-12)
    assert model.parameters.layer_effect == model.parameters.similarity == model.parameters.edit_penalty == 0


def test_routes_that_look_back_far_are_no_error():
    wide = RouteSpace(12, window=12)
    route = parse_route("L0-L11 L11(+h-11) RJ", 12)
    wide.check_route(route)
    assert RouteFeatures.from_routes([route]).num_edits_by_route == pytest.approx([2.5])


def test_parameters_are_read_off_some_routes_when_there_are_many_scores():
    routes = some_routes(40)
    scores = some_scores(routes, rows=200)
    some = scores.keep_rows_of_every_nth_route(90)
    assert scores.keep_rows_of_every_nth_route(200) is scores
    assert 0 < len(some.route_index) <= 100
    kept = {str(route) for route in some.routes.routes}
    assert str(routes[0]) in kept  # the standard pass
    rows = [
        (str(scores.routes.routes[index]), *rest)
        for index, *rest in zip(scores.route_index, scores.round_index, scores.accuracy, scores.examples, strict=True)
    ]
    left = [
        (str(some.routes.routes[index]), *rest)
        for index, *rest in zip(some.route_index, some.round_index, some.accuracy, some.examples, strict=True)
    ]
    assert left == [row for row in rows if row[0] in kept]  # all that was seen of a route, or nothing


@pytest.mark.parametrize("shared", [False, True])
def test_coin_flips_are_taken_for_coin_flips_after_one_round(shared):
    """Routes that fail on the same examples differ less than independent noise; who mistakes one for the other errs."""
    features, rng = RouteFeatures.from_routes(some_routes(80)), np.random.default_rng(3)
    right = rng.random((80, 60)) < 0.5
    if shared:
        right = np.where(rng.random((80, 60)) < 0.1, right, right[:1])
    scores = ObservedAccuracies(features, np.arange(80), np.zeros(80, dtype=int), right.mean(axis=1), np.full(80, 60.0))
    noise = RouteGP.fit(scores, start=GPKernelParameters()).parameters.noise
    assert noise < 0.5 if shared else noise > 0.8
