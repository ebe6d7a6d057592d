import dataclasses
import math

import numpy as np
import pytest

from macro_routing.evaluation.holdout_selection import (
    combine_expected_and_measured_gain,
    compute_gain_probability,
    rank_candidates_by_gain_bound,
    select_confirmed_candidate,
)
from macro_routing.routes import Route, parse_route
from macro_routing.search import Candidate
from macro_routing.search.searcher import ExpectedGain

STANDARD = Candidate(Route.standard(8))
GOOD, BETTER = (Candidate(parse_route(text, 8)) for text in ("L0-L3 L3 RJ", "L0-L4 L4 RJ"))


def verdicts(**fixed):
    control = np.zeros(100, dtype=bool)
    rows = {STANDARD.route: control}
    for name, count in fixed.items():
        rows[{"good": GOOD, "better": BETTER}[name].route] = np.arange(100) < count
    return lambda route: rows[route]


def expecting(candidate, mean, deviation):
    return dataclasses.replace(candidate, expected=ExpectedGain(mean, deviation**2))


def test_two_opinions_are_weighed_by_how_sure_they_are():
    control, route = np.array([True] * 3 + [False] * 97), np.array([False] * 3 + [True] * 12 + [False] * 85)
    fresh = combine_expected_and_measured_gain(None, control, route)
    assert (fresh.mean, fresh.variance) == pytest.approx((0.09, 17 / 100**2))
    both = combine_expected_and_measured_gain(ExpectedGain(0.03, 17 / 100**2), control, route)
    assert (both.mean, both.variance) == pytest.approx((0.06, fresh.variance / 2))
    sure = combine_expected_and_measured_gain(ExpectedGain(0.03, 1e-9), control, route)
    assert sure.mean == pytest.approx(0.03, abs=1e-4)
    assert combine_expected_and_measured_gain(ExpectedGain(0.03, 0.01), control[:0], route[:0]) == ExpectedGain(
        0.03, 0.01
    )
    assert combine_expected_and_measured_gain(None, control[:0], route[:0]) is None


def test_certainty_is_the_probability_of_a_gain():
    assert compute_gain_probability(None) == 0.5
    assert compute_gain_probability(ExpectedGain(0.0, 0.01)) == pytest.approx(0.5)
    assert compute_gain_probability(ExpectedGain(0.1645, 0.01)) == pytest.approx(0.95, abs=1e-3)
    assert compute_gain_probability(ExpectedGain(-0.1645, 0.01)) == pytest.approx(0.05, abs=1e-3)
    assert compute_gain_probability(ExpectedGain(0.1, 0.0)) == pytest.approx(1.0)


def test_only_what_is_almost_certainly_better_is_chosen():
    # Four fixed and none broken of a hundred: 0.04 with a deviation of the root of six, in hundredths.
    doubt = 0.5 * (1 - math.erf(4 / math.sqrt(12)))
    assert select_confirmed_candidate([STANDARD, GOOD], verdicts(good=4), doubt + 0.01) is GOOD
    assert select_confirmed_candidate([STANDARD, GOOD], verdicts(good=4), doubt - 0.01) is STANDARD
    assert (
        select_confirmed_candidate([STANDARD, GOOD], verdicts(good=0), 1.0) is GOOD
    )  # whoever doubts nothing gets what was found


def test_what_the_search_expects_counts():
    hopeful, doubtful = expecting(GOOD, 0.05, 0.02), expecting(GOOD, -0.05, 0.02)
    assert select_confirmed_candidate([STANDARD, hopeful], verdicts(good=2), 0.05) is hopeful
    assert select_confirmed_candidate([STANDARD, doubtful], verdicts(good=4), 0.05) is STANDARD
    assert select_confirmed_candidate([STANDARD, GOOD], verdicts(good=2), 0.05) is STANDARD


def test_of_several_the_one_of_which_most_is_expected():
    assert select_confirmed_candidate([STANDARD, GOOD, BETTER], verdicts(good=6, better=9), 0.05) is BETTER
    hopeful = expecting(GOOD, 0.2, 0.01)
    assert select_confirmed_candidate([STANDARD, hopeful, BETTER], verdicts(good=6, better=9), 0.05) is hopeful
    # A little more on average, but far less certain.
    sure, doubtful = expecting(GOOD, 0.06, 0.01), expecting(BETTER, 0.08, 0.5)
    assert select_confirmed_candidate([STANDARD, sure, doubtful], verdicts(good=6, better=7), 0.05) is sure


def test_the_standard_pass_need_not_be_among_them():
    assert select_confirmed_candidate([GOOD], verdicts(good=1), 0.1).route.is_standard


def test_whoever_may_be_chosen_is_ranked_with_its_certainty():
    seen = verdicts(good=6, better=9)
    order = rank_candidates_by_gain_bound([STANDARD, GOOD, BETTER], seen)
    assert [one for one, _ in order] == [BETTER, GOOD]
    control = seen(STANDARD.route)
    assert [sure for _, sure in order] == [
        compute_gain_probability(combine_expected_and_measured_gain(None, control, seen(one.route))) for one, _ in order
    ]
    for (one, sure), doubt in ((order[0], 0.01), (order[0], 0.5)):
        assert 1 - sure <= doubt
        assert select_confirmed_candidate([STANDARD, GOOD, BETTER], seen, doubt) is one
    assert select_confirmed_candidate([STANDARD, GOOD, BETTER], seen, (1 - order[0][1]) / 2) is STANDARD
