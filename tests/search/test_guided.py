import dataclasses
from collections import Counter

import pytest

from experiments.planted_family import BUDGET, SPACE, TRAINING, VALIDATION, make_problem
from macro_routing.errors import RouteOutsideSpaceError, SettingsError
from macro_routing.evaluation.planted_problem import PlantedProblem, solve_planted
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.routes.mixture import Mixture
from macro_routing.search import GuidedSearch, GuidedSettings, Score, ScoringFailure
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.empirical_scores import MAX_FITTED_DRAWS, subsample_draws_keeping_best
from macro_routing.search.route_edits import list_edits_of_standard_pass_without_adds, program_from_edits
from macro_routing.search.searcher import Draw, Proposal
from macro_routing.search.top_k import decode_top_routes

SMALL = RouteSpace(8, max_length=12)


def play(search, score):
    state = search.make_initial_state()
    asked_so_far = []
    while (asked := search.ask(state)) is not None:
        asked_so_far.append(asked)
        state = search.tell(state, asked, [score(proposal.route, asked.examples) for proposal in asked.proposals])
    return asked_so_far, state


def half(_route, examples):
    return Score(len(examples) // 2, len(examples))


@pytest.mark.parametrize("budget", [200, 900, 4321, 20_000])
def test_the_budget_is_never_exceeded_and_examples_are_never_shared(budget):
    search = GuidedSearch(SMALL, 120, budget, GuidedSettings(draws=20), 3)
    rounds, _ = play(search, half)
    spent = sum(len(asked.proposals) * len(asked.examples) for asked in rounds)
    assert spent <= search.max_evaluations() <= budget
    shown = [example for asked in rounds for example in asked.examples]
    assert len(shown) == len(set(shown))
    assert rounds[-1].examples == search.holdout


def test_the_published_budget_pays_for_all_examples():
    search = GuidedSearch(SPACE, TRAINING, BUDGET)
    assert search.max_rounds == 11
    assert search.max_candidates == 6  # five beside the standard pass, as the protocol says
    assert len(search.holdout) == 500
    assert sum(map(len, search.examples_by_round)) == 500
    assert 0.97 * BUDGET < search.max_evaluations() <= BUDGET


@pytest.mark.parametrize("budget", [900, 4321, 20_000])
def test_candidates_for_members_are_scored_on_all_searched_examples(budget):
    decision = DecisionSettings(members=3)
    search = GuidedSearch(SMALL, 120, budget, GuidedSettings(draws=20), 3, decision)
    rounds, state = play(search, half)
    spent = sum(len(asked.proposals) * len(asked.examples) for asked in rounds)
    mixtures = 2 * len(search.holdout)  # of 2 and of 3 members
    assert spent + mixtures <= search.max_evaluations() + mixtures <= budget
    *chunks, crossed, confirmation = rounds
    assert confirmation.examples == search.holdout
    assert crossed.examples == search.searched_examples == tuple(one for asked in chunks for one in asked.examples)
    candidates = [proposal.route for proposal in crossed.proposals]
    assert candidates == search.list_member_candidates(state)
    assert candidates[0].is_standard
    assert len(set(candidates)) == len(candidates) > 2
    assert {8 - 1, 8 + 1} & {route.length for route in candidates}
    assert search.max_candidates == GuidedSettings().k + 2


def test_a_maximum_cost_limits_routes():
    decision = DecisionSettings(max_cost=1.1, members=1)
    rounds, _ = play(GuidedSearch(SMALL, 120, 4000, GuidedSettings(draws=20), 1, decision), half)
    assert all(proposal.route.length <= 8 for asked in rounds for proposal in asked.proposals)


def test_a_maximum_cost_makes_accuracy_matter_more_than_cost():
    assert (DecisionSettings().price, DecisionSettings().members) == (0.5, 1)
    assert (DecisionSettings(max_cost=2).price, DecisionSettings(max_cost=2).members) == (0.0, 3)
    assert (DecisionSettings(max_cost=2, price=1, members=2).price, DecisionSettings(members=4).members) == (1.0, 4)
    for settings, words in (
        ({"max_cost": 0.9}, "max_cost = 0.9 is not allowed: it must be a number of at least 1"),
        ({"max_cost": float("nan")}, "max_cost = nan is not allowed"),
        ({"members": 0}, "members = 0 is not allowed: it must be an integer from 1 to 8"),
        ({"members": 9}, "members = 9 is not allowed"),
        ({"price": -1}, "price = -1 is not allowed"),
    ):
        with pytest.raises(SettingsError, match=words):
            DecisionSettings(**settings)


def test_every_round_has_the_control_and_different_routes():
    rounds, _ = play(GuidedSearch(SMALL, 120, 4000, GuidedSettings(draws=20), 1), half)
    for asked in rounds:
        routes = [proposal.route for proposal in asked.proposals]
        assert routes[0].is_standard
        assert len(set(routes)) == len(routes)
        for route in routes:
            SMALL.check_route(route)


def test_a_budget_too_small_is_rejected_with_the_number_that_would_do():
    with pytest.raises(SettingsError, match="give a larger budget, or fewer draws") as rejected:
        GuidedSearch(SMALL, 120, 40, GuidedSettings(draws=20))
    needed = int(str(rejected.value).split(" evaluations;")[0].split()[-1])
    GuidedSearch(SMALL, 120, needed, GuidedSettings(draws=20))


def test_too_few_examples_are_rejected_as_such():
    with pytest.raises(SettingsError, match="2 training examples are not allowed"):
        GuidedSearch(SMALL, 2, 40_000, GuidedSettings(draws=20))


def test_failed_routes_teach_nothing_and_do_not_win():
    def score(route, examples):
        if route.is_standard or route.length == 9:
            return Score(len(examples) * 0.9 if route.length == 9 else len(examples) * 0.5, len(examples))
        return ScoringFailure("it never ends")

    search = GuidedSearch(SMALL, 200, 8000, GuidedSettings(draws=20), 0)
    _, state = play(search, score)
    assert search.candidates(state)[1].route.length == 9

    nothing = GuidedSearch(SMALL, 200, 8000, GuidedSettings(draws=20), 0)
    state = nothing.make_initial_state()
    asked = nothing.ask(state)
    state = nothing.tell(state, asked, [ScoringFailure("all do")] * len(asked.proposals))
    assert [candidate.route for candidate in nothing.candidates(state)] == [Route.standard(8)]


def test_it_finds_a_single_move_that_pays():
    """Of 28 layers' 251 moves one is right: a large gain must be found nearly whole, and told from its neighbours."""
    target = parse_route("L0-L14 L11 RJ", 28)
    problem = PlantedProblem(target, base=0.02, peak=0.45, reach=10, seed=5)
    solution = solve_planted(
        GuidedSearch(SPACE, TRAINING, 20_000, GuidedSettings(iterations=8), 5),
        problem,
        training=TRAINING,
        validation=VALIDATION,
    )
    gained = problem.true_score(solution.selected.route) - problem.true_score(Route.standard(28))
    assert gained > 0.7 * (0.45 - problem.true_score(Route.standard(28)))


def test_for_speed_it_finds_the_shortest_route_that_loses_little():
    """Every skipped layer costs half a point, but for layers 3 to 5, which cost nothing: three layers can go."""
    free = {3, 4, 5}

    def score(route, examples):
        lost = 0.05 * len(set(range(8)) - free - {step.layer for step in route.steps})
        return Score(len(examples) * max(0.0, 0.6 - lost), len(examples))

    search = GuidedSearch(
        SMALL, 400, 16_000, GuidedSettings(draws=30), 2, DecisionSettings(objective="speed", margin=3.0)
    )
    rounds, state = play(search, score)
    drawn = [proposal.route for asked in rounds for proposal in asked.proposals]
    assert all(route.is_standard or route.length < 8 for route in drawn)
    best = search.candidates(state)[1].route
    assert best.length == 5
    assert free.isdisjoint(step.layer for step in best.steps)


def test_longer_routes_are_paid_for():
    """Two routes gain the same; the search prefers the one with fewer layers when layers have a price."""
    shorter, longer = parse_route("L0-L3 L5 RJ", 8), parse_route("L0-L4 L3 RJ", 8)

    def score(route, examples):
        return Score(len(examples) * (0.6 if route in (shorter, longer) else 0.3), len(examples))

    search = GuidedSearch(SMALL, 200, 8000, GuidedSettings(draws=30), 2, DecisionSettings(price=5.0))
    _, state = play(search, score)
    ranked = [candidate.route for candidate in search.candidates(state)]
    assert ranked[1] == shorter


def test_with_nothing_to_find_it_returns_the_standard_pass():
    for seed in range(3):
        searcher = GuidedSearch(SPACE, 400, 6000, GuidedSettings(iterations=4, draws=24), seed)
        solution = solve_planted(
            searcher, make_problem(seed, nothing=True).problem, training=400, validation=VALIDATION
        )
        assert solution.selected.route.is_standard


def test_the_policy_moves_to_what_is_good():
    target = parse_route("L0-L4 L4 RJ", 8)

    def score(route, examples):
        return Score(len(examples) * (0.6 if route == target else 0.3), len(examples))

    search = GuidedSearch(SMALL, 200, 8000, GuidedSettings(draws=30), 2)
    before = search.policy(search.make_initial_state()).log_probability(target.program_with_earliest_rejoin())
    _, state = play(search, score)
    assert search.policy(state).log_probability(target.program_with_earliest_rejoin()) > before + 1
    assert search.candidates(state)[1].route == target


def test_a_candidate_has_the_probability_of_its_most_probable_program():
    """As routes that are decoded from a policy."""
    search = GuidedSearch(SMALL, 60, 2000, GuidedSettings(draws=10), 2)
    _, state = play(search, lambda _route, examples: Score(len(examples) // 2, len(examples)))
    policy = search.policy(state)
    decoded = {candidate.route: candidate for candidate in decode_top_routes(policy, 3000)}
    compared = [candidate for candidate in search.candidates(state) if candidate.route in decoded]
    assert len(compared) > 1
    for candidate in compared:
        assert candidate.log_probability == pytest.approx(decoded[candidate.route].log_probability)
    shortest = policy.log_probability(Route.standard(8).program_with_earliest_rejoin())
    assert compared[0].log_probability > shortest + 0.1  # written in another way


def test_a_lonely_peak_is_a_finalist_though_the_model_expects_none():
    """In a flat landscape the model shrinks what a single route scores; its own scores speak for it."""
    search = GuidedSearch(SMALL, 200, 8000, GuidedSettings(draws=30), 2)
    every = {proposal.route for proposal in search.ask(search.make_initial_state()).proposals}
    peak = next(route for route in every if not route.is_standard)

    def score(route, examples):
        return Score(len(examples) * (0.5 if route == peak else 0.3), len(examples))

    rounds, state = play(search, score)
    assert all(peak in [proposal.route for proposal in asked.proposals] for asked in rounds[1:])
    assert peak in [candidate.route for candidate in search.candidates(state)]


def test_earlier_knowledge_is_tried_first():
    search = GuidedSearch(SPACE, 400, 8000, GuidedSettings(draws=24), 0)
    route = parse_route("L0-L20 L17 L19 L22 RJ", 28)
    prior = search.policy(search.make_initial_state()).update_from_programs(
        [route.program_with_earliest_rejoin()], [1.0], alpha=1.0
    )
    assert route not in [proposal.route for proposal in search.ask(search.make_initial_state()).proposals]
    assert route in [proposal.route for proposal in search.ask(search.start_from_given_prior(prior)).proposals]


def test_the_family_is_the_protocols():
    problems = [make_problem(seed) for seed in range(24)]
    assert {(planted.level, planted.edits, planted.kind) for planted in problems} == {
        (level, edits, kind)
        for level in ("easy", "noisy", "hard")
        for edits in (1, 2, 3, 4)
        for kind in ("moves", "adds")
    }
    for planted in problems:
        standard = Route.standard(28)
        assert planted.problem.true_score(standard) == pytest.approx(planted.standard_score)
        assert planted.share(planted.problem.target) == pytest.approx(1)
        assert planted.share(standard) == pytest.approx(0)
        assert planted.problem.target.has_adds == (planted.kind == "adds")
        SPACE.check_route(planted.problem.target)
    empty = make_problem(7, nothing=True)
    assert empty.problem.target.is_standard
    assert empty.problem.true_score(parse_route("L0-L3 L3 RJ", 28)) < empty.standard_score


def test_settings_are_checked_by_name():
    wrong = {"iterations": 0, "draws": 2, "holdout": 0.95, "finalists": 0, "policy_weight": -1}
    for name, value in wrong.items():
        with pytest.raises(SettingsError, match=name):
            GuidedSettings(**{name: value})
    assert dataclasses.replace(GuidedSettings(), finalists=3).k == 5
    assert dataclasses.replace(GuidedSettings(), finalists=3, n_empirical_best=0).k == 4


def test_the_confirmation_judges_what_was_learned_and_teaches_nothing():
    search = GuidedSearch(SMALL, 120, 4000, GuidedSettings(draws=20), 1)
    state = search.make_initial_state()
    while (asked := search.ask(state)) is not None:
        before = state
        state = search.tell(state, asked, [half(proposal.route, asked.examples) for proposal in asked.proposals])
    last = search.ask(before)
    assert last.examples == search.holdout
    for outcome in (Score(0, len(last.examples)), Score(len(last.examples), len(last.examples))):
        again = GuidedSearch(SMALL, 120, 4000, GuidedSettings(draws=20), 1)
        confirmed = again.tell(before, last, [outcome] * len(last.proposals))
        assert again.candidates(confirmed) == search.candidates(state)


@pytest.mark.parametrize(("examples", "budget"), [(3, 43_500), (10, 43_500), (100, 1_000_000)])
def test_more_budget_than_routes_can_use_is_not_spent(examples, budget):
    search = GuidedSearch(SPACE, examples, budget)
    assert len(search.ask(search.make_initial_state()).proposals) <= search.max_draws_per_round <= 1000
    assert search.max_evaluations() < budget


def test_routes_outside_the_space_cannot_be_among_the_allowed():
    with pytest.raises(RouteOutsideSpaceError):
        GuidedSearch(SMALL, 40, 4000, allowed_routes=frozenset([parse_route("L0-L7 L0-L7 RJ", 8)]))


def test_too_many_scores_are_thinned_by_route():
    routes = [
        Route.standard(8),
        *{program_from_edits(SMALL, [move]).to_route(8) for move in list_edits_of_standard_pass_without_adds(SMALL)},
    ]
    draws = [
        Draw(number, Proposal(route), Score(min(40, index), 40))
        for number in range(60)
        for index, route in enumerate(routes)
    ]
    kept = subsample_draws_keeping_best(draws)
    assert len(draws) > MAX_FITTED_DRAWS >= len(kept) > MAX_FITTED_DRAWS / 2
    kept_draws = Counter(draw.proposal.route for draw in kept)
    assert set(kept_draws.values()) == {60}
    assert routes[0] in kept_draws
    assert routes[-1] in kept_draws  # the best
    assert any(route in kept_draws for route in routes[1 : len(routes) // 2])  # and some of the worst
    assert subsample_draws_keeping_best(draws[:100]) == draws[:100]


def test_variants_of_one_question_are_on_one_side():
    groups = tuple(number // 7 for number in range(120))
    search = GuidedSearch(SMALL, 120, 6000, GuidedSettings(draws=20), 3, groups=groups)
    held, searched = ({groups[example] for example in part} for part in (search.holdout, search.searched_examples))
    assert held
    assert not held & searched
    assert len(search.holdout) + len(search.searched_examples) == len(set(search.holdout + search.searched_examples))
    alone = GuidedSearch(SMALL, 120, 6000, GuidedSettings(draws=20), 3)
    assert len(alone.holdout) - 7 < len(search.holdout) <= len(alone.holdout)
    assert search.identity != alone.identity
    assert "groups" not in alone.identity
    with pytest.raises(SettingsError, match="5 group numbers do not fit 120 examples"):
        GuidedSearch(SMALL, 120, 6000, groups=groups[:5])


def test_candidates_for_members_are_affordable_with_the_standard_pass():
    decision = DecisionSettings(max_cost=1.5)
    search = GuidedSearch(SMALL, 120, 8000, GuidedSettings(draws=20), 3, decision)
    _, state = play(search, half)
    standard, *others = search.list_member_candidates(state)
    assert len(others) > 3
    for route in others:
        assert Mixture.from_weights([(standard, 1.0), (route, -0.5)]).length <= 12


def test_a_maximum_cost_allows_what_rounds_to_it():
    assert DecisionSettings(max_cost=1.1).is_affordable(parse_route("L0-L29 L27-L29 RJ", 30))
    assert not DecisionSettings(max_cost=1.1).is_affordable(parse_route("L0-L29 L26-L29 RJ", 30))
