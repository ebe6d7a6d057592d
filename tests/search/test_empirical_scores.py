import numpy as np
import pytest

from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import Score, ScoringFailure
from macro_routing.search.empirical_scores import EmpiricalScores
from macro_routing.search.route_edits import list_edits_of_standard_pass_without_adds, program_from_edits
from macro_routing.search.searcher import Draw, Proposal

STANDARD, FIRST, SECOND = (parse_route(text, 8) for text in ("L0 RJ", "L0-L3 L3 RJ", "L0-L4 L4 RJ"))


def draws(*rows):
    return [Draw(number, Proposal(route), Score(correct, 40)) for number, route, correct in rows]


def test_leads_are_over_the_routes_of_the_same_round():
    failed = Draw(1, Proposal(FIRST), ScoringFailure("it never ends"))
    scores = EmpiricalScores.from_scored_draws(
        [*draws((0, STANDARD, 20), (0, FIRST, 30), (1, STANDARD, 30), (1, SECOND, 36)), failed]
    )
    # The second round was easier for all: thirty of forty lead by nothing there.
    assert scores.gains[FIRST] == pytest.approx(30 - 25)
    assert scores.gains[SECOND] == pytest.approx(36 - 33)
    assert scores.gains[STANDARD] == pytest.approx(20 - 25 + 30 - 33)
    assert scores.rank_routes() == [FIRST, SECOND]
    assert scores.examples == {STANDARD: 80, FIRST: 40, SECOND: 40}


def test_what_was_seen_often_counts_more():
    """Ten rounds three points ahead come before one lucky round."""
    rows = [(number, route, 20 + (route is FIRST) * 4) for number in range(10) for route in (STANDARD, FIRST)]
    scores = EmpiricalScores.from_scored_draws(draws(*rows, (0, SECOND, 30)))
    assert scores.rank_routes()[0] == FIRST


def test_a_lonely_peak_comes_first_under_real_noise():
    """One route is better by ten points and was seen in every round, the others once each, all by coin flips."""
    space = RouteSpace(8, max_length=12)
    routes = list(
        {program_from_edits(space, [move]).to_route(8) for move in list_edits_of_standard_pass_without_adds(space)}
    )
    ranked_first = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        peak, *others = routes
        seen = [(number, route) for number in range(15) for route in (Route.standard(8), peak)]
        seen += [(int(rng.integers(15)), route) for route in others]
        rows = [(number, route, int(rng.binomial(40, 0.6 if route == peak else 0.5))) for number, route in seen]
        ranked_first += EmpiricalScores.from_scored_draws(draws(*rows)).rank_routes()[0] == peak
    assert ranked_first >= 18
