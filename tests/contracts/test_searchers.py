"""What every search must keep. The searches come from the registry of methods, so that none can be forgotten."""

import dataclasses

import numpy as np
import pytest

from macro_routing.errors import SettingsError
from macro_routing.routes import Route, RouteSpace
from macro_routing.runs.methods import METHODS
from macro_routing.runs.search_building import MethodInputs, build_search
from macro_routing.search import MacroSettings, Score, ScoringFailure, Searcher, load_state, save_state
from macro_routing.search.method_names import METHOD_NAMES
from macro_routing.search.tree_search import TreeSearch

SPACE = RouteSpace(8, max_length=12)
EXAMPLES = 60
SETTINGS = {
    "macro": {"iterations": 5, "draws": 8, "elite": 3},
    "macro-restarts": {"iterations": 5, "draws": 8, "elite": 3},
    "random": {"iterations": 5, "draws": 8},
    "guided": {"iterations": 4, "draws": 20},
    "rys-beam": {"beam_width": 3, "max_span": 3},
    "rys-surrogate": {"rounds": 3, "proposals": 8, "pool_size": 60},
    "drllm": {"simulations": 6},
    "drllm-ext": {"simulations": 6},
    "cola": {"simulations": 6},
    "contrastive": {"amateur": "smaller"},
}
BUDGETS = {"guided": 900, "macro": None, "random": None, "macro-restarts": 1500}
SEARCHES = [name for name, method in METHODS.items() if method.kind == "search"]
TREES = [name for name, method in METHODS.items() if method.kind in ("router", "oracle")]
CONTROLS = [name for name, method in METHODS.items() if method.kind == "control"]
LEARNING = {"guided", "macro", "macro-restarts", "random", "rys-surrogate"}
"""Searches whose proposals depend on the seed; the others depend on it through their examples."""
ANCHORED = [name for name in SEARCHES if name not in ("guided", "standard")]


def build(name, seed, **settings):
    """The search of a registered method, as a run builds it."""
    settings = METHODS[name].settings(**{**SETTINGS.get(name, {}), **settings})
    budget = BUDGETS.get(name, 3000)
    influence = [0.5, 0.1, 0.4, 0.2, 0.6, 0.3, 0.7, 0.9]
    return build_search(
        name, MethodInputs(SPACE, EXAMPLES, EXAMPLES, budget, seed, settings, MacroSettings(), lambda: influence)
    )


@pytest.fixture(params=SEARCHES)
def make(request):
    return lambda seed: build(request.param, seed)


def score(route, examples):
    """Longer routes are better, to a point; some fail."""
    if route.length == 10:
        return ScoringFailure("ten steps are cursed")
    return Score(min(len(examples), max(0, route.length - 7) * len(examples) // 6), len(examples))


def answer(search, state, asked):
    return search.tell(state, asked, [score(proposal.route, asked.examples) for proposal in asked.proposals])


def play(search, state=None, rounds=None):
    """Rounds asked from ``state`` on, and the state after them."""
    state = search.make_initial_state() if state is None else state
    seen = []
    while (rounds is None or len(seen) < rounds) and (asked := search.ask(state)) is not None:
        seen.append(asked)
        state = answer(search, state, asked)
    return seen, state


def assert_equal_fields(first, second):
    """Every field of two states, arrays bit by bit and nested states included."""
    assert type(first) is type(second)
    for field in dataclasses.fields(first):
        if not field.init:
            continue
        mine, theirs = getattr(first, field.name), getattr(second, field.name)
        if isinstance(mine, np.ndarray):
            assert np.array_equal(mine, theirs)
        elif field.name == "restarts":
            for left, right in zip(mine, theirs, strict=True):
                assert_equal_fields(left, right)
        else:
            assert mine == theirs


def test_every_method_is_covered():
    assert sorted(SEARCHES + TREES + CONTROLS) == sorted(METHOD_NAMES)
    assert set(SETTINGS) | set(BUDGETS) <= set(METHOD_NAMES)
    assert all(isinstance(build(name, 0), Searcher) for name in SEARCHES)


def test_the_seed_decides_everything(make, request):
    (first, one), (again, two) = play(make(3)), play(make(3))
    assert first == again
    assert make(3).candidates(one) == make(3).candidates(two)
    if request.node.callspec.params["make"] in LEARNING:
        assert play(make(4))[0] != first


def test_asking_twice_is_asking_once(make):
    search = make(0)
    state = search.make_initial_state()
    asked = search.ask(state)
    assert search.ask(state) == asked
    if asked is None:
        return
    after = answer(search, state, asked)
    assert search.ask(state) == asked
    assert search.ask(after) != asked
    # Another one, which has kept nothing, asks the same.
    assert make(0).ask(dataclasses.replace(state)) == asked
    assert make(0).ask(dataclasses.replace(after)) == search.ask(after)


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_saved_loaded_and_continued_is_not_stopped(make, stop, tmp_path):
    search = make(1)
    uninterrupted, final = play(search)
    begun, state = play(search, rounds=stop)
    save_state(tmp_path / "state.npz", state)
    loaded = load_state(tmp_path / "state.npz")
    assert_equal_fields(loaded, state)
    continued, end = play(make(1), loaded)
    assert begun + continued == uninterrupted
    assert make(1).candidates(end) == search.candidates(final)
    assert_equal_fields(end, final)


def test_every_proposal_and_candidate_is_executable(make):
    for seed in range(3):
        search = make(seed)
        rounds, state = play(search)
        for proposal in (proposal for asked in rounds for proposal in asked.proposals):
            assert proposal.route.layers == SPACE.layers
            if proposal.program is not None:
                SPACE.check_route(proposal.program)
                assert proposal.program.to_route(8) == proposal.route
        for candidate in search.candidates(state):
            assert candidate.route.layers == SPACE.layers
            if candidate.program is not None:
                SPACE.check_route(candidate.route)


def test_rounds_stay_within_the_plan_and_say_what_matters(make):
    search = make(2)
    rounds = play(search)[0]
    assert len(rounds) <= search.max_rounds
    for number, asked in enumerate(rounds):
        assert asked.number == number
        assert len(set(asked.examples)) == len(asked.examples) > 0
        assert set(asked.examples) <= set(range(EXAMPLES))
        assert 1 <= asked.keep <= len(asked.proposals) <= search.max_draws_per_round
    sizes = [len(asked.proposals) * len(asked.examples) for asked in rounds]
    for done in range(len(rounds) + 1):
        assert sum(sizes[done:]) <= search.max_evaluations(done)


def test_failed_scores_do_not_stop_a_search(make):
    search = make(6)
    state = search.make_initial_state()
    while (asked := search.ask(state)) is not None:
        state = search.tell(state, asked, [ScoringFailure("out of memory")] * len(asked.proposals))
    assert state.rounds > 0 or search.max_rounds == 0
    search.candidates(state)


def test_candidates_are_different_routes(make):
    search = make(7)
    routes = [candidate.route for candidate in search.candidates(play(search)[1])]
    assert 0 < len(set(routes)) == len(routes) <= search.max_candidates


@pytest.mark.parametrize("name", ANCHORED)
def test_anchored_searches_have_the_standard_pass_first(name):
    is_macro = name.startswith("macro")
    search = build(name, 5, **({"final_set": "anchored"} if is_macro else {"anchored": True}))
    assert search.candidates(play(search)[1])[0].route.is_standard


def test_results_of_another_round_or_search_are_rejected(make):
    search = make(8)
    state = search.make_initial_state()
    other = dataclasses.replace(state, identity="{}")
    with pytest.raises(Exception, match="belongs to another search"):
        search.ask(other)
    if (asked := search.ask(state)) is None:
        return
    outcomes = [score(proposal.route, asked.examples) for proposal in asked.proposals]
    with pytest.raises(Exception, match="was not asked in this state"):
        search.tell(state, dataclasses.replace(asked, number=5), outcomes)
    with pytest.raises(Exception, match="outcomes came"):
        search.tell(state, asked, outcomes[1:])


# --- methods with a tree search per example ---------------------------------------------------------------------


@pytest.mark.parametrize("name", TREES)
def test_tree_searches_are_repeatable_and_stay_within_their_plan(name):
    searches = [build(name, seed) for seed in (3, 3, 4)]
    asked: list[list[tuple[int, Route]]] = []
    for labels in searches:
        rewards: list[tuple[int, Route]] = []

        def reward(pairs, rewards=rewards):
            rewards += pairs
            return [float(route.length % 2 == example % 2) for example, route in pairs]

        trees = labels.run_searches(reward)
        assert all(isinstance(tree, TreeSearch) and tree.ask() is None for tree in trees)
        assert len(rewards) <= labels.max_evaluations()
        assert max(tree.statistics.asked for tree in trees) <= labels.max_draws_per_round
        assert all(route.layers == SPACE.layers for _, route in rewards)
        asked.append(rewards)
    assert asked[0] == asked[1] != asked[2]


# --- controls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_learns_on_the_examples_of_the_guided_search(name):
    control, again, other = (build(name, seed) for seed in (3, 3, 4))
    guided = build_search(
        "guided", MethodInputs(SPACE, EXAMPLES, EXAMPLES, 3000, 3, control.settings, MacroSettings(), list)
    )
    assert control.searched_examples == guided.searched_examples
    assert control.identity == again.identity != other.identity
    assert control.max_evaluations() <= 3000
    assert control.max_evaluations(1) == 0
    assert control.sources[0] == Route.standard(SPACE.layers)
    assert len(set(control.sources)) == len(control.sources)
    assert all(source.layers == SPACE.layers for source in control.sources)


def test_a_small_budget_gives_a_control_fewer_examples():
    control = dataclasses.replace(build("dola", 0), budget=25)
    assert control.max_draws_per_round == 4  # the standard pass, two exits, and what is found
    assert control.searched_examples == build("dola", 0).searched_examples[:6]
    with pytest.raises(SettingsError, match="dola scores 4 routes, so it must be at least 4"):
        dataclasses.replace(control, budget=3)
    with pytest.raises(SettingsError, match="dola has no route to try on 2 layers"):
        dataclasses.replace(control, layers=2)
