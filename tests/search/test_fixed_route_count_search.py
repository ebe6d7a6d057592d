"""Sweeps over given routes, and MACRO restarted until its budget is spent."""

import dataclasses

import pytest

from macro_routing.errors import SettingsError
from macro_routing.evaluation.planted_problem import PlantedProblem, solve_planted
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import MacroSearch, MacroSettings, Score
from macro_routing.search.fixed_route_count_search import RouteListSearch, StandardPassMethod, list_early_exit_routes
from macro_routing.search.fixed_route_count_search import list_layer_drop_routes as dropped
from macro_routing.search.fixed_route_count_settings import FixedRouteCountSettings
from macro_routing.search.macro import RestartedSearch
from macro_routing.search.state_file import load_state, save_state


def test_early_exits_are_the_first_layers_alone():
    assert [[step.layer for step in route.steps] for route in list_early_exit_routes(4)] == [[0], [0, 1], [0, 1, 2]]


def test_layers_are_dropped_by_influence():
    routes = dropped([0.9, 0.1, 0.5, 0.1], max_dropped=9)
    assert [[step.layer for step in route.steps] for route in routes] == [[0, 2, 3], [0, 2], [0]]


def test_a_sweep_asks_for_all_routes_on_as_many_examples_as_it_can_pay():
    sweep = RouteListSearch(4, 50, 20, routes=list_early_exit_routes(4))
    asked = sweep.ask(sweep.make_initial_state())
    assert len(asked.proposals) == 3
    assert len(asked.examples) == 6
    assert sweep.max_evaluations() == 18
    state = sweep.tell(sweep.make_initial_state(), asked, [Score(1, 6), Score(5, 6), Score(2, 6)])
    assert sweep.ask(state) is None
    assert [str(candidate.route) for candidate in sweep.candidates(state)] == ["L0 L1", "L0-L2", "L0"]
    anchored = dataclasses.replace(sweep, settings=FixedRouteCountSettings(k=2, anchored=True))
    state = anchored.tell(anchored.make_initial_state(), asked, [Score(1, 6), Score(5, 6), Score(2, 6)])
    assert [str(candidate.route) for candidate in anchored.candidates(state)] == ["L0 RJ", "L0 L1"]
    with pytest.raises(SettingsError, match="at least 3"):
        RouteListSearch(4, 50, 2, routes=list_early_exit_routes(4))


def test_a_model_of_one_layer_has_nothing_to_leave_out():
    with pytest.raises(SettingsError, match="no route to try on 1 layers"):
        RouteListSearch(1, 50, 20, routes=list_early_exit_routes(1))


def test_the_standard_pass_needs_no_search():
    search = StandardPassMethod(5, 10, 1)
    assert search.ask(search.make_initial_state()) is None
    assert (search.max_rounds, search.max_draws_per_round, search.max_evaluations()) == (0, 0, 0)
    assert [candidate.route for candidate in search.candidates(search.make_initial_state())] == [Route.standard(5)]


SPACE = RouteSpace(8, max_length=12)
FIRST = MacroSearch(SPACE, 40, MacroSettings(iterations=4, draws=6, elite=2, k=3), seed=5)


def _play(search, problem, most=1000):
    """All rounds with planted outcomes."""
    state, rounds = search.make_initial_state(), []
    while (asked := search.ask(state)) is not None and len(rounds) < most:
        rounds.append(asked)
        outcomes = [
            problem.simulate_observed_score(proposal.route, "train", asked.examples) for proposal in asked.proposals
        ]
        state = search.tell(state, asked, outcomes)
    return state, rounds


def test_restarts_spend_the_budget_and_begin_with_the_literal_search():
    problem = PlantedProblem(parse_route("L0-L3 L2 RJ", 8), seed=1)
    budget = 3 * FIRST.max_evaluations() + 10
    search = RestartedSearch(FIRST, budget)
    state, rounds = _play(search, problem)
    literal, literal_rounds = _play(FIRST, problem)
    for mine, other in zip(rounds, literal_rounds, strict=False):
        assert (mine.proposals, mine.examples) == (other.proposals, other.examples)
    spent = sum(len(asked.proposals) * len(asked.examples) for asked in rounds)
    assert spent <= budget
    assert (
        spent + FIRST.max_draws_per_round * max(len(planned.examples) for planned in FIRST.planned_round_sizes) > budget
    )  # no further round would have fitted
    assert [asked.number for asked in rounds] == list(range(len(rounds)))
    assert len(state.restarts) >= 3
    mine = {candidate.route for candidate in search.candidates(state)}
    assert {candidate.route for candidate in FIRST.candidates(literal)} <= mine
    assert len(search.candidates(state)) == len(mine)  # each once
    assert len({tuple(asked.proposals) for asked in rounds}) == len(rounds)  # fresh seeds draw something else


def test_a_restarted_search_goes_on_from_its_file(tmp_path):
    problem = PlantedProblem(parse_route("L0-L3 L2 RJ", 8), seed=1)
    search = RestartedSearch(FIRST, 2 * FIRST.max_evaluations() + 10)
    state, _ = _play(search, problem, most=6)
    save_state(tmp_path / "s.npz", state)
    again = load_state(tmp_path / "s.npz")
    assert search.ask(again) == search.ask(state)
    assert search.candidates(again) == search.candidates(state)


def test_restarts_refuse_a_budget_that_pays_no_round():
    with pytest.raises(SettingsError, match="budget"):
        RestartedSearch(FIRST, 10)


def test_restarts_are_a_searcher_like_any_other():
    problem = PlantedProblem(parse_route("L0-L3 L2 RJ", 8), seed=3)
    solution = solve_planted(RestartedSearch(FIRST, 2000), problem, training=40, validation=60)
    assert solution.selected.route in {candidate.route for candidate in solution.candidates}
