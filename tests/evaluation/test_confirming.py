import numpy as np
import pytest

from macro_routing.evaluation.confirming import chance_of_lead, confirmed
from macro_routing.evaluation.statistics import exact_mcnemar
from macro_routing.routes import Route, parse_route
from macro_routing.search import Candidate

STANDARD = Candidate(Route.standard(8))
GOOD, BETTER = (Candidate(parse_route(text, 8)) for text in ("L0-L3 L3 RJ", "L0-L4 L4 RJ"))


def verdicts(**fixed):
    control = np.zeros(100, dtype=bool)
    rows = {STANDARD.route: control}
    for name, count in fixed.items():
        rows[{"good": GOOD, "better": BETTER}[name].route] = np.arange(100) < count
    return lambda route: rows[route]


def test_the_chance_is_half_the_two_sided_one():
    control, route = np.array([True] * 3 + [False] * 12), np.array([False] * 3 + [True] * 12)
    assert chance_of_lead(control, route) == pytest.approx(exact_mcnemar(12, 3) / 2)
    assert chance_of_lead(route, control) == 1.0
    assert chance_of_lead(control, control) == 1.0


def test_only_a_lead_that_is_hardly_chance_is_chosen():
    assert confirmed([STANDARD, GOOD], verdicts(good=4), 0.07) is GOOD  # one half to the fourth: 0.0625
    assert confirmed([STANDARD, GOOD], verdicts(good=4), 0.06) is STANDARD
    assert confirmed([STANDARD, GOOD], verdicts(good=0), 1.0) is GOOD  # whoever doubts nothing gets what was found


def test_several_finalists_share_the_doubt():
    assert confirmed([STANDARD, GOOD, BETTER], verdicts(good=3, better=4), 0.13) is BETTER
    assert confirmed([STANDARD, GOOD, BETTER], verdicts(good=3, better=4), 0.12) is STANDARD
    assert confirmed([STANDARD, GOOD], verdicts(good=4), 0.12, finalists=2) is STANDARD


def test_the_standard_pass_need_not_be_among_them():
    assert confirmed([GOOD], verdicts(good=1), 0.1).route.is_standard
