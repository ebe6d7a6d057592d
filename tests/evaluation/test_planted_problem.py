import pytest
from hypothesis import given

from macro_routing.errors import SettingsError
from macro_routing.evaluation.planted_problem import TRAIN, VALIDATION, PlantedProblem, edit_distance, solve_planted
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import MacroSearch, MacroSettings, RandomSearch, RandomSettings
from tests.strategies import programs

STANDARD = Route.standard(8)


@pytest.mark.parametrize(
    ("text", "distance"),
    [("L0 RJ", 0), ("L0 L0 RJ", 1), ("L0 L2 RJ", 1), ("L0 L1 L2(+h-1) RJ", 1), ("L0-L4 L1 RJ", 4), ("L0", 7)],
)
def test_distance_counts_steps(text, distance):
    assert edit_distance(parse_route(text, 8), STANDARD) == distance


@given(programs(layers=6, longest=6), programs(layers=6, longest=6))
def test_distance_is_a_distance(one, other):
    one, other = one.to_route(6), other.to_route(6)
    assert edit_distance(one, other) == edit_distance(other, one)
    assert (edit_distance(one, other) == 0) == (one == other)
    assert edit_distance(one, other) <= max(one.length, other.length)


def test_true_score_falls_to_the_base():
    problem = PlantedProblem(parse_route("L0 L0 RJ", 8), base=0.2, peak=0.8, reach=4)
    assert problem.true_score(problem.target) == pytest.approx(0.8)
    assert problem.true_score(STANDARD) == pytest.approx(0.65)
    assert problem.true_score(parse_route("L0", 8)) == pytest.approx(0.2)


def test_flips_are_fixed_and_as_frequent_as_the_true_score():
    problem = PlantedProblem(STANDARD, base=0.2, peak=0.7, seed=3)
    simulate_which_examples_correct = problem.simulate_which_examples_correct(STANDARD, TRAIN, range(20_000))
    assert simulate_which_examples_correct.mean() == pytest.approx(0.7, abs=0.02)
    assert (
        problem.simulate_which_examples_correct(STANDARD, TRAIN, [5, 17, 3])
        == simulate_which_examples_correct[[5, 17, 3]]
    ).all()
    assert (
        problem.simulate_which_examples_correct(STANDARD, VALIDATION, range(100))
        != simulate_which_examples_correct[:100]
    ).any()


def _found(method, settings, target, seeds):
    space = RouteSpace(8, max_length=12, radius=3, window=2)
    results = [
        solve_planted(
            method(space, 2000, settings, seed),
            PlantedProblem(parse_route(target, 8), base=0.1, peak=0.9, reach=4, seed=seed),
            training=2000,
            validation=400,
        )
        for seed in range(seeds)
    ]
    return sum(result.found for result in results)


def test_the_search_finds_what_was_planted():
    """Wider than the paper's settings, which collapse on small spaces; chance alone would find one in hundreds."""
    settings = MacroSettings(iterations=10, draws=60, elite=10, beta=10.0, alpha=0.5, k=10)
    assert _found(MacroSearch, settings, "L0-L4 L6 RJ", 10) >= 7


def test_the_standard_pass_is_kept_when_it_is_the_best():
    assert _found(MacroSearch, MacroSettings(), "L0 RJ", 10) >= 9


def test_random_search_finds_a_frequent_route():
    assert _found(RandomSearch, RandomSettings(draws=60), "L0-L4 L6 RJ", 10) >= 5


def test_nothing_planted_is_rejected():
    with pytest.raises(SettingsError, match="peak"):
        PlantedProblem(STANDARD, base=0.5, peak=0.5)
