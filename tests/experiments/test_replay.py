import numpy as np
import pytest

from experiments.landscape import Landscape, list_routes_to_record
from experiments.replay import complement_examples, replay_search
from macro_routing.errors import MacroError
from macro_routing.routes import RouteSpace, parse_route
from macro_routing.search import GuidedSearch, GuidedSettings, RandomSearch, RandomSettings
from macro_routing.search.rys import BlockSweep
from macro_routing.search.rys_settings import BlockSweepSettings

SPACE = RouteSpace(6)
TARGET = parse_route("L0-L3 L2 RJ", 6)


@pytest.fixture(scope="module")
def landscape():
    """The target is right on nine of ten examples, what applies its layers on some more than others."""
    routes = list_routes_to_record(SPACE, 20, seed=1)
    rng = np.random.default_rng(0)
    share = {route: 0.9 if route == TARGET else 0.3 for route in routes}
    return Landscape(tuple(routes), np.stack([rng.random(400) < share[route] for route in routes]))


def guided(landscape):
    inside = frozenset(route for route in landscape.routes if route.length <= SPACE.max_length and _fits(route))
    return lambda examples, budget, seed: GuidedSearch(
        SPACE, examples, budget, GuidedSettings(iterations=5, draws=20), seed, allowed_routes=inside
    )


def _fits(route):
    try:
        SPACE.check_route(route)
    except MacroError:
        return False
    return True


def test_a_search_finds_the_best_recorded_route_and_asks_for_no_other(landscape):
    found = replay_search(guided(landscape), landscape, budget=4000, seed=3)
    assert found.route == TARGET
    assert found.gain == pytest.approx(0.6, abs=0.15)
    assert found.missing == 0
    assert found.asked <= 4000
    finalist = next(finalist for finalist in found.finalists if finalist.evidence.route == TARGET)
    assert finalist.evidence.p_value < 0.001
    assert finalist.evidence.probability_of_meeting_objective > 0.97
    assert finalist.judged.mean() == found.gain


def test_complemented_outcomes_leave_nothing_to_find_and_all_correlations(landscape):
    complemented = complement_examples(landscape, 5)
    changed = complemented.correct != landscape.correct
    assert (changed == changed[0]).all()
    assert 0.4 < changed[0].mean() < 0.6
    found = [
        replay_search(guided(landscape), complement_examples(landscape, seed), budget=2000, seed=seed).route
        for seed in range(8)
    ]
    assert sum(not route.is_standard for route in found) <= 2


def test_sweeps_are_replayed_and_chosen_by_validation(landscape):
    def make(examples, budget, seed):
        return BlockSweep(6, examples, budget, BlockSweepSettings(anchored=True), seed)

    found = replay_search(make, landscape, budget=4000, seed=1)
    assert found.route == TARGET
    assert found.missing == 0


def test_routes_that_were_not_recorded_are_counted_as_such(landscape):
    def make(examples, _budget, seed):
        return RandomSearch(SPACE, examples, RandomSettings(iterations=3, draws=30, anchored=True), seed)

    found = replay_search(make, landscape, budget=0, seed=1)
    assert 0 < found.missing < found.asked


def test_the_seed_decides_and_judging_examples_are_not_shown(landscape):
    one, again = (replay_search(guided(landscape), landscape, budget=3000, seed=5) for _ in range(2))
    assert (one.route, one.gain, one.asked) == (again.route, again.gain, again.asked)
    shown = []

    def spying(examples, budget, seed):
        shown.append(examples)
        return guided(landscape)(examples, budget, seed)

    replay_search(spying, landscape, budget=3000, seed=5)
    assert shown == [200]  # of 400: two fifths judge, a tenth validates


def test_a_search_may_be_told_something_else_and_is_judged_by_right_or_wrong_all_the_same(landscape):
    other = parse_route("L0-L2 L1 RJ", 6)
    assert other in landscape

    def misleading(route):
        return np.full(landscape.examples, 0.9 if route == other else 0.1)

    found = replay_search(guided(landscape), landscape, budget=4000, seed=3, credit=misleading)
    judged = np.random.default_rng([3, 9]).permutation(400)[:160]
    gain = landscape.correct_examples(other)[judged].mean() - landscape.standard[judged].mean()
    assert found.proposed == pytest.approx(gain)
    assert abs(gain) < 0.3  # and not what it was told
