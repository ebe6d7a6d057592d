"""What every search must keep; a new search joins by a line in SEARCHERS."""

import pytest

from macro_routing.routes import RouteSpace
from macro_routing.search import (
    Failure,
    GuidedSearch,
    GuidedSettings,
    MacroSearch,
    MacroSettings,
    RandomSearch,
    RandomSettings,
    Score,
    load_state,
    save_state,
)

SPACE = RouteSpace(8, max_length=12)
SEARCHERS = {
    "macro": lambda seed: MacroSearch(SPACE, 60, MacroSettings(iterations=5, draws=8, elite=3), seed),
    "macro anchored": lambda seed: MacroSearch(SPACE, 60, MacroSettings(draws=8, final_set="anchored"), seed),
    "random": lambda seed: RandomSearch(SPACE, 60, RandomSettings(iterations=5, draws=8), seed),
    "guided": lambda seed: GuidedSearch(SPACE, 60, 900, GuidedSettings(rounds=4, draws=20), seed),
    "random anchored": lambda seed: RandomSearch(SPACE, 60, RandomSettings(draws=8, anchored=True), seed),
}


@pytest.fixture(params=SEARCHERS)
def make(request):
    return SEARCHERS[request.param]


def score(route, examples):
    """Longer routes are better, to a point; some fail."""
    if route.length == 10:
        return Failure("ten steps are cursed")
    return Score(min(len(examples), max(0, route.length - 7) * len(examples) // 6), len(examples))


def answer(search, state, asked):
    return search.tell(state, asked, [score(proposal.route, asked.examples) for proposal in asked.proposals])


def play(search, state=None, rounds=None):
    """Rounds asked from ``state`` on, and the state after them."""
    state = search.start() if state is None else state
    seen = []
    while (rounds is None or len(seen) < rounds) and (asked := search.ask(state)) is not None:
        seen.append(asked)
        state = answer(search, state, asked)
    return seen, state


def test_the_seed_decides_everything(make):
    (first, one), (again, two) = play(make(3)), play(make(3))
    assert first == again
    assert make(3).candidates(one) == make(3).candidates(two)
    assert play(make(4))[0] != first


def test_asking_twice_is_asking_once(make):
    search = make(0)
    state = search.start()
    assert search.ask(state) == search.ask(state)
    asked = search.ask(state)
    after = answer(search, state, asked)
    assert search.ask(state) == asked
    assert search.ask(after) != asked
    # Another one, which has kept nothing, asks the same.
    assert make(0).ask(state) == asked
    assert make(0).ask(after) == search.ask(after)


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_saved_loaded_and_continued_is_not_stopped(make, stop, tmp_path):
    search = make(1)
    whole, final = play(search)
    begun, state = play(search, rounds=stop)
    save_state(tmp_path / "state.npz", state)
    continued, end = play(make(1), load_state(tmp_path / "state.npz"))
    assert begun + continued == whole
    assert end.draws == final.draws
    assert make(1).candidates(end) == search.candidates(final)
    assert all((end.arrays[name] == final.arrays[name]).all() for name in final.arrays)


def test_every_proposal_and_candidate_is_feasible(make):
    for seed in range(5):
        search = make(seed)
        rounds, state = play(search)
        for proposal in (proposal for asked in rounds for proposal in asked.proposals):
            SPACE.check_route(proposal.program)
            assert proposal.program.expand(8) == proposal.route
        for candidate in search.candidates(state):
            SPACE.check_route(candidate.route)


def test_rounds_use_training_examples_once_and_say_what_matters(make):
    for asked in play(make(2))[0]:
        assert len(set(asked.examples)) == len(asked.examples) > 0
        assert set(asked.examples) <= set(range(60))
        assert 1 <= asked.keep <= len(asked.proposals)


def test_failed_scores_do_not_stop_a_search(make):
    search = make(6)
    state = search.start()
    while (asked := search.ask(state)) is not None:
        state = search.tell(state, asked, [Failure("out of memory")] * len(asked.proposals))
    assert state.rounds > 0
    search.candidates(state)


def test_candidates_are_different_routes(make):
    search = make(7)
    routes = [candidate.route for candidate in search.candidates(play(search)[1])]
    assert len(set(routes)) == len(routes) > 0
