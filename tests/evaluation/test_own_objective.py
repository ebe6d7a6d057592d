"""An objective of one's own: a search by it, its decision, and going on with it."""

import numpy as np
import pytest

from macro_routing import Route, maximize_objective, parse_route
from macro_routing.errors import MacroError, SearchError
from macro_routing.evaluation.final_decision import assess_finalists
from macro_routing.evaluation.gain_posterior import GainPosterior
from macro_routing.evaluation.planted_problem import edit_distance
from macro_routing.routes import RouteSpace
from macro_routing.search import GuidedSettings, load_state
from macro_routing.search.decision_settings import DecisionSettings

SPACE = RouteSpace(8, max_length=12)
TARGET = parse_route("L0-L4 L6 RJ", 8)
SETTINGS = GuidedSettings(draws=20, iterations=4)
EXAMPLES = [f"text {number}" for number in range(120)]


class Objective:
    """Partial scores that fall with the distance to a target; counts its calls."""

    def __init__(self, target=TARGET, fall=0.15):
        self.target, self.fall = target, fall
        self.asked = []

    def __call__(self, routes, examples):
        self.asked += [(route, example) for route in routes for example in examples]
        noise = np.array([np.random.default_rng(list(example.encode())).uniform(-0.2, 0.2) for example in examples])
        return [np.clip(0.7 - self.fall * edit_distance(route, self.target) + noise, 0, 1) for route in routes]


def test_the_best_route_is_found_and_shown_on_fresh_examples():
    objective = Objective()
    result = maximize_objective(objective, SPACE, EXAMPLES, settings=SETTINGS, seed=1)
    assert result.route == TARGET
    assert result.held_out == 60
    assert result.evidence.p_value < 0.05
    standard, routed = (np.mean(Objective()([route], EXAMPLES)) for route in (Route.standard(8), TARGET))
    assert result.evidence.gain == pytest.approx(routed - standard, abs=0.03)
    assert len(set(objective.asked)) == len(objective.asked)  # nothing is asked for twice
    again = maximize_objective(Objective(), SPACE, EXAMPLES, settings=SETTINGS, seed=1)
    assert [finalist.p_value for finalist in again.finalists] == [finalist.p_value for finalist in result.finalists]


def test_the_standard_pass_stays_where_nothing_is_better():
    result = maximize_objective(Objective(Route.standard(8)), SPACE, EXAMPLES, settings=SETTINGS)
    assert result.route.is_standard
    assert result.evidence is None
    assert result.finalists


def test_what_decides_was_not_used_to_search():
    objective = Objective()
    result = maximize_objective(objective, SPACE, EXAMPLES, settings=SETTINGS, seed=1)
    confirmation = [draw.proposal.route for draw in result.state.draws if draw.round == result.state.rounds - 1]
    by_example = {example: {route for route, asked in objective.asked if asked == example} for example in EXAMPLES}
    fresh = [example for example, routes in by_example.items() if routes == set(confirmation)]
    assert len(fresh) == result.held_out


def test_a_stopped_search_goes_on_and_ends_the_same(tmp_path):
    whole = maximize_objective(Objective(), SPACE, EXAMPLES, settings=SETTINGS, seed=1)
    stopping, calls = Objective(), []

    def stop_in_third_round(routes, examples):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return stopping(routes, examples)

    with pytest.raises(KeyboardInterrupt):
        maximize_objective(stop_in_third_round, SPACE, EXAMPLES, folder=tmp_path / "s", settings=SETTINGS, seed=1)
    assert load_state(tmp_path / "s" / "state.npz").rounds == 2
    continued = Objective()
    result = maximize_objective(continued, SPACE, EXAMPLES, folder=tmp_path / "s", settings=SETTINGS, seed=1)
    assert result.route == whole.route
    assert [str(draw.proposal.route) for draw in result.state.draws] == [
        str(draw.proposal.route) for draw in whole.state.draws
    ]
    assert result.evidence.p_value == whole.evidence.p_value
    # Of the two rounds before, only the standard pass and another route on the first round's examples are asked
    # for again.
    repeated = [(route, example) for route, example in continued.asked if (route, example) in set(stopping.asked)]
    assert {route.is_standard for route, _ in repeated} == {True, False}
    assert len(repeated) == 30


def test_another_objective_or_other_settings_do_not_go_on(tmp_path):
    maximize_objective(Objective(), SPACE, EXAMPLES, folder=tmp_path, settings=SETTINGS)
    with pytest.raises(SearchError, match="another objective or other examples"):
        maximize_objective(Objective(fall=0.1), SPACE, EXAMPLES, folder=tmp_path, settings=SETTINGS)
    worse_elsewhere = lambda routes, examples: [  # noqa: E731 equal for the standard pass
        row if route.is_standard else row / 2 for route, row in zip(routes, Objective()(routes, examples), strict=True)
    ]
    with pytest.raises(SearchError, match="another objective or other examples"):
        maximize_objective(worse_elsewhere, SPACE, EXAMPLES, folder=tmp_path, settings=SETTINGS)
    with pytest.raises(SearchError, match="another search"):
        maximize_objective(Objective(), SPACE, EXAMPLES, folder=tmp_path, settings=SETTINGS, seed=5)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (np.full((20, 15), 1.5), "outside of 0 to 1"),
        (np.full((20, 15), np.nan), "returned NaN"),
        (np.full(20, 0.5), "a row for each"),
        (None, "shape"),
        ("good", "must return numbers"),
    ],
)
def test_scores_of_another_shape_or_range_are_rejected(scores, words):
    with pytest.raises(SearchError, match=words):
        maximize_objective(lambda *_: scores, SPACE, EXAMPLES, settings=SETTINGS)


def test_too_few_examples_and_mixtures_are_rejected():
    with pytest.raises(MacroError, match="3 or more"):
        maximize_objective(Objective(), SPACE, EXAMPLES[:2], settings=SETTINGS)
    with pytest.raises(SearchError, match="mixtures"):
        maximize_objective(Objective(), SPACE, EXAMPLES, decision=DecisionSettings(max_cost=2.0))


def test_partial_scores_give_the_posterior_of_counts_where_they_are_counts():
    differences = np.array([1.0] * 7 + [-1.0] * 3 + [0.0] * 40)
    by_sums = GainPosterior.from_sums(differences.sum(), (differences**2).sum(), 50)
    assert by_sums.expected_gain == GainPosterior.from_counts(7, 3, 50).expected_gain
    assert by_sums.gain_standard_deviation == GainPosterior.from_counts(7, 3, 50).gain_standard_deviation


def test_partial_scores_without_a_gain_pass_the_decision_rarely():
    rng = np.random.default_rng(0)
    routes = [parse_route(f"L0-L{layer} L{layer} RJ", 8) for layer in range(1, 6)]
    passed = 0
    for _ in range(100):
        scores = {route: rng.beta(2, 2, 80) for route in (Route.standard(8), *routes)}
        evidence = assess_finalists(routes, scores.__getitem__, DecisionSettings(price=0.0))
        passed += any(finalist.p_value <= 0.05 for finalist in evidence.values())
    assert passed <= 10  # 5 are expected; more than 10 are in 1 % of the cases
