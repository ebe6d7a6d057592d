import itertools

import numpy as np
import pytest

from macro_routing.errors import MacroError
from macro_routing.evaluation.final_decision import (
    assess_finalists,
    compute_sign_flip_p_values,
    count_examples_to_pass_margin_test,
    decide_route,
    describe_decision_power,
)
from macro_routing.evaluation.gain_posterior import PRIOR_SCALES, PRIOR_WEIGHTS, GainPosterior
from macro_routing.routes import Route, parse_route
from macro_routing.search.decision_settings import DecisionSettings

STANDARD = Route.standard(8)
LONG, LONGER, SHORT, SHORTER = (
    parse_route(text, 8) for text in ("L0-L3 L3 RJ", "L0-L4 L2 RJ", "L0-L3 L5 RJ", "L0 L3 RJ")
)


def outcomes(n=400, **changes):
    """The standard pass is correct on the first half; a route fixes and breaks so many of the others."""
    control = np.arange(n) < n // 2
    rows = {STANDARD: control}
    for name, (fixed, broken) in changes.items():
        route = {"long": LONG, "longer": LONGER, "short": SHORT, "shorter": SHORTER}[name]
        rows[route] = control ^ (np.arange(n) < broken) ^ (np.arange(n) >= n - fixed)
    return lambda route: rows[route], list(rows)


def decide(get_correct_flags, routes, **settings):
    decision = DecisionSettings(**settings)
    return decide_route(assess_finalists(routes, get_correct_flags, decision), decision)


def test_only_a_significant_gain_replaces_the_standard_pass():
    assert decide(*outcomes(long=(40, 10))) == LONG
    assert decide(*outcomes(long=(14, 10))) is None
    assert decide(*outcomes(long=(10, 40))) is None
    assert decide(*outcomes()) is None


def test_p_values_of_one_route_are_those_of_the_sign_test():
    for fixed, broken in itertools.product((0, 3, 9, 20), (0, 4, 11)):
        differences = np.array([[1] * fixed + [-1] * broken + [0] * 50], dtype=np.int8)
        n = fixed + broken
        # Every assignment of signs to the examples that differ is as probable as any other.
        signs = np.random.default_rng(1).choice([-1, 1], size=(200_000, n)).sum(axis=1) if n else np.zeros(1)
        exact = float((signs >= fixed - broken).mean())
        assert compute_sign_flip_p_values(differences, [0.0])[0] == pytest.approx(exact, abs=0.02)


def test_chance_returns_another_route_as_often_as_allowed():
    rng = np.random.default_rng(0)
    returned = []
    for _ in range(300):
        rows = rng.random((5, 200)) < 0.5
        by_route = dict(zip([STANDARD, LONG, LONGER, SHORT, SHORTER], rows, strict=True))
        returned.append(decide(by_route.__getitem__, list(by_route), price=0.0) is not None)
    assert 0.02 <= np.mean(returned) <= 0.09


def test_a_longer_route_pays_for_its_layers():
    get_correct_flags, routes = outcomes(long=(30, 10))
    assert decide(get_correct_flags, routes, price=0.0) == LONG
    assert decide(get_correct_flags, routes, price=5.0) is None
    assert DecisionSettings(price=1.0).required_gain(LONG) == pytest.approx(0.01 * 10 * (LONG.length / 8 - 1))
    assert DecisionSettings(price=1.0).required_gain(SHORT) == 0


def test_the_shorter_of_two_that_cannot_be_told_apart_is_returned():
    assert decide(*outcomes(long=(60, 5), short=(58, 5))) == SHORT
    assert decide(*outcomes(long=(120, 5), short=(40, 5))) == LONG


def test_speed_returns_the_shortest_that_is_not_worse_by_the_margin():
    get_correct_flags, routes = outcomes(2000, short=(100, 110), shorter=(80, 200), long=(400, 0))
    assert decide(get_correct_flags, routes, objective="speed", margin=3.0) == SHORT
    assert decide(get_correct_flags, routes, objective="speed", margin=10.0) == SHORTER
    assert decide(get_correct_flags, routes, objective="speed", margin=0.1) is None


def test_without_any_difference_the_margin_needs_as_many_examples_as_the_rule_of_three():
    settings = DecisionSettings(objective="speed", margin=3.0)
    needed = count_examples_to_pass_margin_test(settings, 0.0)
    assert 90 <= needed <= 100
    for n, passes in ((needed + 1, True), (needed - 1, False)):
        assert (decide(*outcomes(n, short=(0, 0)), objective="speed") is not None) == passes
    assert count_examples_to_pass_margin_test(settings, 0.2) > 500
    assert count_examples_to_pass_margin_test(DecisionSettings(margin=1.0), 0.2) > 5000


def test_excluded_routes_are_not_returned():
    get_correct_flags, routes = outcomes(long=(60, 5), short=(58, 5))
    settings = DecisionSettings()
    evidence = assess_finalists(routes, get_correct_flags, settings)
    assert decide_route(evidence, settings, [SHORT]) == LONG
    assert decide_route(evidence, settings, [SHORT, LONG]) is None


def test_no_fresh_example_decides_nothing():
    assert decide(*outcomes(0, long=(0, 0))) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "cost"},
        {"price": -1},
        {"margin": float("nan")},
        {"margin": 0},
        {"max_error_probability": 0},
        {"max_error_probability": 0.7},
    ],
)
def test_impossible_settings_are_rejected(settings):
    with pytest.raises(MacroError, match=next(iter(settings))):
        DecisionSettings(**settings)


def test_the_posterior_equals_numerical_integration():
    fixed, broken, n = 30, 12, 500
    posterior = GainPosterior.from_counts(fixed, broken, n)
    gains = np.linspace(-0.6, 0.6, 240_001)
    prior = sum(
        weight * np.exp(-(gains**2) / (2 * scale**2)) / scale
        for weight, scale in zip(PRIOR_WEIGHTS, PRIOR_SCALES, strict=True)
    )
    variance = (fixed + broken + 2) / n**2
    density = prior * np.exp(-((gains - (fixed - broken) / n) ** 2) / (2 * variance))
    density /= density.sum()
    assert posterior.expected_gain == pytest.approx(float(density @ gains), abs=1e-6)
    assert posterior.gain_standard_deviation == pytest.approx(
        float(np.sqrt(density @ gains**2 - (density @ gains) ** 2)), abs=1e-6
    )
    assert posterior.probability_above(0.02) == pytest.approx(float(density[gains > 0.02].sum()), abs=1e-4)


def test_a_small_gain_shrinks_and_a_large_one_stays():
    small, large = GainPosterior.from_counts(22, 18, 400), GainPosterior.from_counts(90, 10, 400)
    assert 0 < small.expected_gain < 0.6 * 0.01
    assert large.expected_gain > 0.9 * 0.2
    assert small.probability_above(0) < 0.8
    assert large.probability_above(0) > 0.999
    assert GainPosterior.from_counts(0, 0, 0).probability_above(0) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("settings", "fresh", "words"),
    [
        ({}, 700, "700 held-out examples can show a gain of"),
        ({}, 10, "10 held-out examples are too few to show even a gain of 20 points"),
        ({}, 0, "about 803 can show one of 5 points"),
        (
            {"objective": "speed"},
            700,
            "700 held-out examples decide; a margin of 3 points needs 95",
        ),
        (
            {"objective": "speed"},
            20,
            "20 held-out examples are too few to return any route (use more, or a larger margin)",
        ),
        ({"objective": "speed", "margin": 1.0}, 700, "about 5427 if a fifth of them do"),
    ],
)
def test_what_the_examples_can_show_is_said(settings, fresh, words):
    assert words in describe_decision_power(DecisionSettings(**settings), fresh)


def test_variants_of_one_question_are_one_observation():
    variants = 5
    groups = [number // variants for number in range(100)]
    gains = np.repeat([1.0] * 5 + [-1.0] + [0.0] * 14, variants)[None]  # 25 fixed, 5 broken
    alone = compute_sign_flip_p_values(gains, [0.0])[0]
    together = compute_sign_flip_p_values(gains, [0.0], groups)[0]
    assert alone < 0.01
    assert together > 0.05
    each = list(range(100))
    assert compute_sign_flip_p_values(gains, [0.0], each)[0] == alone

    def get_correct_flags(route):
        return np.repeat(np.arange(20) < 2, variants) if route.is_standard else np.repeat(np.arange(20) < 7, variants)

    decision = DecisionSettings(price=0.0)
    evidence = assess_finalists([LONG], get_correct_flags, decision)
    grouped = assess_finalists([LONG], get_correct_flags, decision, groups)
    assert grouped[LONG].p_value > evidence[LONG].p_value
    assert grouped[LONG].posterior.expected_gain < evidence[LONG].posterior.expected_gain
    assert decide_route(evidence, decision) == LONG
