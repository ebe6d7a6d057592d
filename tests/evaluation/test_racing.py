"""Exact racing against scoring everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.errors import SettingsError
from macro_routing.evaluation.planted_problem import PlantedProblem, solve_planted
from macro_routing.evaluation.racing import RaceStanding, find_routes_still_racing, race_routes
from macro_routing.evaluation.scoring_settings import EXACT, NEVER, STATISTICAL
from macro_routing.routes import RouteSpace, parse_route
from macro_routing.search import MacroSearch, MacroSettings, MarkovPolicy, Score, ScoringFailure, StoppedScore
from macro_routing.search.macro import select_elite
from macro_routing.search.searcher import Draw, Proposal, rank_draws

POLICY = MarkovPolicy.make_prior(RouteSpace(8, max_length=14), 0.4, 0.2)


def _draws(count, seed):
    rng = np.random.default_rng(seed)
    return [POLICY.sample_program(rng).to_route(8) for _ in range(count)]


def _table(draws, sizes, seed):
    """Credit of every different route on every unit, with many ties."""
    rng = np.random.default_rng([seed, 1])
    rates = {route: rng.choice([0.1, 0.5, 0.9]) for route in dict.fromkeys(draws)}
    return {route: [int(rng.binomial(size, rate)) for size in sizes] for route, rate in rates.items()}


def _raced(draws, sizes, keep, table, mode):
    calls = []

    def score(number, routes):
        calls.extend((number, route) for route in routes)
        return {route: table[route][number] for route in routes}

    standings = race_routes(draws, sizes, keep, mode, score)
    assert len(calls) == len(set(calls))  # nothing is scored twice
    return [standings[route].outcome_told_to_search for route in draws]


@given(
    count=st.integers(1, 30),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    keep=st.integers(1, 30),
    seed=st.integers(0, 10**6),
)
def test_the_elite_its_scores_and_the_best_draw_are_those_of_full_scoring(count, sizes, keep, seed):
    draws = _draws(count, seed)
    keep = min(keep, count)
    table = _table(draws, sizes, seed)
    full = [Score(sum(table[route]), sum(sizes)) for route in draws]
    raced = _raced(draws, sizes, keep, table, EXACT)
    assert select_elite(raced, keep) == select_elite(full, keep)
    for one, other in zip(raced, full, strict=True):
        if isinstance(one, StoppedScore):
            assert one.correct <= other.correct <= one.accuracy_if_rest_correct * one.total
        else:
            assert one == other
    first = [
        rank_draws([Draw(0, Proposal(r), o) for r, o in zip(draws, outcomes, strict=True)])[0]
        for outcomes in (raced, full)
    ]
    assert first[0] == first[1]
    assert _raced(draws, sizes, keep, table, NEVER) == full


def test_the_order_is_as_good_as_one_known_in_hindsight():
    """Scored one example at a time, little more is scored than if the elite had been known before."""
    draws = list(dict.fromkeys(_draws(60, 3)))[:30]
    sizes = [1] * 100
    table = _table(draws, sizes, 3)
    losses = {route: 100 - sum(table[route]) for route in draws}
    order = sorted((losses[route], place) for place, route in enumerate(draws))
    last = order[4]
    needed = 0
    for place, route in enumerate(draws):
        lost = np.cumsum(1 - np.array(table[route]))
        out = [n for n in range(100) if (lost[n], place) > last]
        needed += out[0] + 1 if out else 100
    scored = sum(o.total if isinstance(o, Score) else o.scored for o in _raced(draws, sizes, 5, table, EXACT))
    assert 3000 - scored >= 0.9 * (3000 - needed)
    assert scored < 3000


def test_nothing_is_stopped_where_everything_is_kept():
    draws = _draws(6, 0)
    assert all(isinstance(o, Score) for o in _raced(draws, [3, 3], 6, _table(draws, [3, 3], 0), EXACT))


def test_a_shorter_route_that_ties_with_the_best_is_not_stopped():
    best = RaceStanding(length=10, total=8, units=2, scored=8, credit=6)
    shorter = RaceStanding(length=9, total=8, units=1, scored=4, credit=2)
    longer = RaceStanding(length=11, total=8, units=1, scored=4, credit=2)
    assert find_routes_still_racing([best, shorter], keep=1) == [1]
    assert find_routes_still_racing([best, longer], keep=1) == []


def test_of_equally_good_and_long_draws_the_earlier_is_not_stopped():
    long, first, second = (parse_route(text, 8) for text in ("L0-L3 L3 RJ", "L0 L2 RJ", "L0-L2 L4 RJ"))
    table = {long: [0, 1], first: [0, 1], second: [1, 0]}
    full = [Score(1, 2)] * 3
    draws = [long, first, second]
    raced = _raced(draws, [1, 1], 1, table, EXACT)
    assert select_elite(raced, 1) == select_elite(full, 1) == [0]
    assert raced[1] == full[1]


@given(seed=st.integers(0, 10**6), keep=st.integers(1, 4))
def test_partial_credits_keep_the_elite_too(seed, keep):
    rng = np.random.default_rng(seed)
    draws = list(dict.fromkeys(_draws(6, seed)))
    keep = min(keep, len(draws))
    sizes = [2, 5, 3]
    table = {route: [int(rng.integers(0, 3 * size + 1)) / 3 for size in sizes] for route in draws}
    full = _raced(draws, sizes, keep, table, NEVER)
    assert select_elite(_raced(draws, sizes, keep, table, EXACT), keep) == select_elite(full, keep)


@given(seed=st.integers(0, 10**6), keep=st.integers(1, 6), mode=st.sampled_from([EXACT, NEVER, STATISTICAL]))
def test_draws_that_fail_are_told_and_the_others_race_on(seed, keep, mode):
    rng = np.random.default_rng(seed)
    draws = list(dict.fromkeys(_draws(10, seed)))
    sizes = [3, 4, 2]
    table = _table(draws, sizes, seed)
    doomed = {route: int(rng.integers(0, 3)) for route in draws if rng.random() < 0.4}
    asked = []

    def score(number, routes):
        asked.extend((number, route) for route in routes)
        return {r: ScoringFailure("died") if doomed.get(r) == number else table[r][number] for r in routes}

    standings = race_routes(draws, sizes, min(keep, len(draws)), mode, score)
    outcomes = [standings[route].outcome_told_to_search for route in draws]
    assert len(asked) == len(set(asked))
    for route, outcome in zip(draws, outcomes, strict=True):
        if isinstance(outcome, ScoringFailure):
            assert (doomed[route], route) in asked
            assert not any((number, route) in asked for number in range(doomed[route] + 1, 3))
    if mode != STATISTICAL:
        sound = [r for r in draws if r not in doomed]
        full = {route: sum(table[route]) for route in sound}
        best = sorted(sound, key=lambda r: (-full[r], draws.index(r)))[:keep]
        assert [draws[place] for place in select_elite(outcomes, keep)] == best


def test_an_unknown_mode_is_rejected():
    with pytest.raises(SettingsError, match="racing"):
        find_routes_still_racing([], 1, "quickly")


@pytest.mark.parametrize("seed", range(4))
def test_a_whole_search_is_the_same_with_racing(seed):
    space = RouteSpace(8, max_length=14)
    problem = PlantedProblem(parse_route("L0-L4 L6 RJ", 8), seed=seed)
    search = MacroSearch(space, 300, MacroSettings(), seed=seed)
    full = solve_planted(search, problem, training=300, validation=60)
    raced = solve_planted(search, problem, training=300, validation=60, racing=EXACT)
    assert np.array_equal(full.state.policy_table, raced.state.policy_table)
    assert raced.candidates == full.candidates
    assert raced.selected == full.selected
    assert search.best_draw(raced.state) == search.best_draw(full.state)
    assert any(isinstance(draw.outcome, StoppedScore) for draw in raced.state.draws)


def test_statistical_racing_scores_less():
    draws = list(dict.fromkeys(_draws(60, 5)))[:30]
    sizes = [4] * 25
    table = _table(draws, sizes, 5)

    def scored(mode):
        return sum(o.total if isinstance(o, Score) else o.scored for o in _raced(draws, sizes, 5, table, mode))

    assert scored(STATISTICAL) < scored(EXACT) < scored(NEVER) == 3000
