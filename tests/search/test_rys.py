import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.errors import RouteError, SearchError, SettingsError
from macro_routing.evaluation.planted_problem import PlantedProblem, solve_planted
from macro_routing.routes import Route
from macro_routing.search import Score, ScoringFailure, load_state, save_state
from macro_routing.search.rys import (
    BlockBeamSearch,
    BlockSweep,
    LayerRepeatCountSweep,
    RYSSurrogateSearch,
    count_possible_blocks,
    find_repeated_block,
    find_repeated_blocks,
    list_blocks,
    make_route_repeating_block,
    make_route_repeating_blocks,
    repeat_counts_from_route,
    route_from_repeat_counts,
    sample_repeat_counts,
)
from macro_routing.search.rys_settings import (
    BlockBeamSettings,
    BlockSweepSettings,
    RepeatCountSettings,
    RYSSurrogateSettings,
)
from tests.strategies import programs

SMALL_SURROGATE = RYSSurrogateSettings(rounds=3, proposals=6, pool_size=30)
SEARCHES = {
    "sweep": lambda budget, **more: BlockSweep(6, 50, budget, **more),
    "sweep of short blocks": lambda budget, **more: BlockSweep(6, 50, budget, BlockSweepSettings(2, 3), **more),
    "counts": lambda budget, **more: LayerRepeatCountSweep(6, 50, budget, RepeatCountSettings(max_repeats=4), **more),
    "beam": lambda budget, **more: BlockBeamSearch(6, 50, budget, BlockBeamSettings(beam_width=3, max_span=2), **more),
    "deep beam": lambda budget, **more: BlockBeamSearch(4, 50, budget, BlockBeamSettings(50, 9, max_span=0), **more),
    "surrogate": lambda budget, **more: RYSSurrogateSearch(6, 50, budget, SMALL_SURROGATE, **more),
    "surrogate of few vectors": lambda budget, **more: RYSSurrogateSearch(2, 50, budget, SMALL_SURROGATE, **more),
}
every_search = pytest.mark.parametrize("make", SEARCHES.values(), ids=SEARCHES)


def _layers(route):
    assert not route.has_adds
    return [step.layer for step in route.steps]


def _some_score(route, total):
    """Different for most routes, the same whenever it is asked for."""
    return Score(sum((index + 1) * layer for index, layer in enumerate(_layers(route))) * 7 % (total + 1), total)


def _rounds(search, score=_some_score):
    """All rounds of a search, and its last state."""
    state, rounds = search.make_initial_state(), []
    while (asked := search.ask(state)) is not None:
        rounds.append(asked)
        state = search.tell(state, asked, [score(proposal.route, len(asked.examples)) for proposal in asked.proposals])
    return rounds, state


def _smallest_budget(make):
    return sum(make(10**9).max_routes_by_round)


@pytest.mark.parametrize(("min_span", "max_span"), [(1, 0), (1, 3), (2, 0), (3, 4), (7, 0), (2, 99)])
def test_the_sweep_is_every_block_once_and_the_standard_pass(min_span, max_span):
    layers = 7
    expected = [list(range(layers))]
    for i in range(layers):
        for j in range(i + 1, layers + 1):
            if j - i >= min_span and (max_span == 0 or j - i <= max_span):
                expected.append(list(range(j)) + list(range(i, layers)))  # noqa: PERF401 written as RYS says it
    (asked,), _ = _rounds(BlockSweep(layers, 20, 10_000, BlockSweepSettings(min_span, max_span)))
    assert [_layers(proposal.route) for proposal in asked.proposals] == expected
    assert sorted(asked.examples) == list(range(20))
    assert count_possible_blocks(layers, min_span, max_span) == len(expected) - 1


def test_all_blocks_of_a_model_are_as_many_as_rys_says():
    assert BlockSweep(32, 100, 10_000).max_routes_by_round == (32 * 33 // 2 + 1,)


def test_the_sweep_of_counts_is_every_layer_alone():
    (asked,), _ = _rounds(LayerRepeatCountSweep(3, 20, 100, RepeatCountSettings(max_repeats=3)))
    assert [_layers(proposal.route) for proposal in asked.proposals] == [
        [0, 1, 2],
        [0, 0, 1, 2],
        [0, 0, 0, 1, 2],
        [0, 1, 1, 2],
        [0, 1, 1, 1, 2],
        [0, 1, 2, 2],
        [0, 1, 2, 2, 2],
    ]


def test_repeated_blocks_run_twice_in_place():
    assert _layers(make_route_repeating_blocks(7, [(4, 6), (1, 3), (3, 4)])) == [0, 1, 2, 1, 2, 3, 3, 4, 5, 4, 5, 6]
    assert make_route_repeating_blocks(7, []).is_standard
    assert make_route_repeating_blocks(7, [(2, 5)]) == make_route_repeating_block(7, 2, 5)


def test_blocks_are_read_back_from_their_routes():
    for i, j in list_blocks(7):
        assert find_repeated_block(make_route_repeating_block(7, i, j)) == (i, j)
        assert find_repeated_blocks(make_route_repeating_block(7, i, j)) == ((i, j),)
    assert find_repeated_block(Route.standard(7)) is None
    assert find_repeated_blocks(Route.standard(7)) == ()
    assert find_repeated_block(make_route_repeating_blocks(7, [(0, 2), (3, 4)])) is None


@given(st.sets(st.integers(0, 9)))
def test_sets_of_blocks_are_read_back_from_their_routes(cuts):
    bounds = sorted(cuts)
    repeated = tuple(zip(bounds[::2], bounds[1::2], strict=False))
    assert find_repeated_blocks(make_route_repeating_blocks(9, repeated)) == repeated


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8).filter(any))
def test_counts_are_read_back_from_their_routes(counts):
    assert repeat_counts_from_route(route_from_repeat_counts(len(counts), counts)) == tuple(counts)


@given(programs(layers=4))
def test_nothing_is_read_from_other_routes(program):
    route = program.to_route(4)
    if (block := find_repeated_block(route)) is not None:
        assert make_route_repeating_block(4, *block) == route
    if (repeated := find_repeated_blocks(route)) is not None:
        assert make_route_repeating_blocks(4, repeated) == route
    if (counts := repeat_counts_from_route(route)) is not None:
        assert route_from_repeat_counts(4, counts) == route


def test_impossible_blocks_and_counts_are_rejected():
    for i, j in [(2, 2), (3, 1), (-1, 2), (0, 5)]:
        with pytest.raises(RouteError, match="not a block of 4 layers"):
            make_route_repeating_block(4, i, j)
        with pytest.raises(RouteError, match="not disjoint blocks"):
            make_route_repeating_blocks(4, [(i, j)])
    with pytest.raises(RouteError, match="not disjoint blocks"):
        make_route_repeating_blocks(4, [(0, 2), (1, 3)])
    for counts in [(1, 1), (1, 1, 1, -1)]:
        with pytest.raises(RouteError, match="one count"):
            route_from_repeat_counts(4, counts)
    with pytest.raises(RouteError, match="at least one step"):
        route_from_repeat_counts(4, (0, 0, 0, 0))


@every_search
@pytest.mark.parametrize("factor", [1, 1.3, 2, 7.9, 1000])
def test_a_budget_is_spent_and_never_exceeded(make, factor):
    budget = int(_smallest_budget(make) * factor)
    search = make(budget, seed=3)
    rounds, state = _rounds(search)
    evaluations = [len(asked.proposals) * len(asked.examples) for asked in rounds]
    assert sum(evaluations) <= search.max_evaluations() <= budget
    assert len(rounds) <= search.max_rounds
    assert all(
        len(asked.proposals) == asked.keep <= size
        for asked, size in zip(rounds, search.max_routes_by_round, strict=False)
    )
    assert max(len(asked.proposals) for asked in rounds) <= search.max_draws_per_round
    assert search.max_evaluations(search.max_rounds) == 0
    assert len(search.candidates(state)) <= search.max_candidates
    assert search.ask(state) is None
    # One example more for each route would be too many, for the budget or for the training set.
    examples = search.planned_round_sizes[0].examples
    assert len(examples) == 50 or budget < (len(examples) + 1) * sum(search.max_routes_by_round)
    for asked in rounds:
        assert asked.examples == examples
        assert len(set(asked.examples)) == len(asked.examples)
        assert set(asked.examples) <= set(range(50))
    routes = [proposal.route for asked in rounds for proposal in asked.proposals]
    assert len(set(routes)) == len(routes)
    assert routes[0].is_standard


@every_search
def test_too_small_a_budget_is_rejected_with_the_number_that_would_do(make):
    least = _smallest_budget(make)
    with pytest.raises(SettingsError, match=rf"budget = {least - 1} .* at least {least}; .* smaller"):
        make(least - 1)
    (first, *_), _ = _rounds(make(least))
    assert len(first.examples) == 1


@every_search
def test_asking_again_after_saving_and_loading_gives_the_same_round(make, tmp_path):
    search = make(5_000, seed=5)
    state = search.make_initial_state()
    while (asked := search.ask(state)) is not None:
        assert search.ask(state) == asked
        outcomes = [_some_score(proposal.route, len(asked.examples)) for proposal in asked.proposals]
        outcomes[-1] = ScoringFailure("out of memory")
        state = search.tell(state, asked, outcomes)
        save_state(tmp_path / "state.npz", state)
        loaded = load_state(tmp_path / "state.npz")
        assert make(5_000, seed=5).ask(loaded) == search.ask(state)
        assert make(5_000, seed=5).candidates(loaded) == search.candidates(state)
    with pytest.raises(SearchError, match="another search"):
        make(5_000, seed=6).ask(state)


@every_search
def test_failures_alone_end_in_no_candidates(make):
    _, state = _rounds(make(5_000), score=lambda _route, _total: ScoringFailure("out of memory"))
    assert make(5_000).candidates(state) == ()


def test_answers_are_checked():
    search = BlockSweep(3, 10, 70)
    asked = search.ask(search.make_initial_state())
    with pytest.raises(SearchError, match="6 outcomes"):
        search.tell(search.make_initial_state(), asked, [Score(1, 10)] * 6)


def test_the_final_set_is_the_best_by_score_or_anchored():
    longer_is_better = {"score": lambda route, total: Score(min(route.length, total), total)}
    search = BlockSweep(4, 10, 10_000, BlockSweepSettings(k=2))
    candidates = search.candidates(_rounds(search, **longer_is_better)[1])
    assert [candidate.route for candidate in candidates] == [
        make_route_repeating_block(4, 0, 4),
        make_route_repeating_block(4, 0, 3),
    ]
    assert [candidate.rank for candidate in candidates] == [1, 2]
    search = BlockSweep(4, 10, 10_000, BlockSweepSettings(k=2, anchored=True))
    candidates = search.candidates(_rounds(search, **longer_is_better)[1])
    assert [candidate.route for candidate in candidates] == [Route.standard(4), make_route_repeating_block(4, 0, 4)]


@pytest.mark.parametrize(
    ("kind", "settings", "named"),
    [
        (BlockSweepSettings, {"min_span": 0}, "min_span"),
        (BlockSweepSettings, {"min_span": 3, "max_span": 2}, "max_span"),
        (BlockSweepSettings, {"k": 0}, "k"),
        (RepeatCountSettings, {"max_repeats": 1}, "max_repeats"),
        (RepeatCountSettings, {"anchored": 1}, "anchored"),
        (BlockBeamSettings, {"beam_width": 0}, "beam_width"),
        (BlockBeamSettings, {"beam_depth": 0}, "beam_depth"),
        (BlockBeamSettings, {"max_span": -1}, "max_span"),
        (RYSSurrogateSettings, {"rounds": 0}, "rounds"),
        (RYSSurrogateSettings, {"proposals": 0}, "proposals"),
        (RYSSurrogateSettings, {"max_repeats": 1}, "max_repeats"),
        (RYSSurrogateSettings, {"pool_size": 39}, "pool_size"),
    ],
)
def test_impossible_settings_are_rejected_by_name(kind, settings, named):
    with pytest.raises(SettingsError, match=f"^{named} = "):
        kind(**settings)


def test_a_span_longer_than_the_model_is_rejected():
    with pytest.raises(SettingsError, match="only 4 layers"):
        BlockSweep(4, 10, 10_000, BlockSweepSettings(min_span=5))


def test_the_beam_extends_exactly_its_best_sets():
    layers, width = 6, 3
    search = BlockBeamSearch(layers, 30, 100_000, BlockBeamSettings(beam_width=width, beam_depth=4, max_span=2))
    rounds, state = _rounds(search)
    singles = [(i, j) for i in range(layers) for j in (i + 1, i + 2) if j <= layers]
    assert [find_repeated_blocks(proposal.route) for proposal in rounds[0].proposals] == [
        (),
        *((block,) for block in singles),
    ]
    for number, asked in enumerate(rounds[1:], 1):
        before = [draw for draw in state.draws if draw.round == number - 1 and not draw.proposal.route.is_standard]
        before.sort(key=lambda draw: (-draw.outcome.accuracy, draw.proposal.route.length))
        parents = [set(find_repeated_blocks(draw.proposal.route)) for draw in before[:width]]
        expected = {
            frozenset({*parent, (i, j)})
            for parent, (i, j) in itertools.product(parents, singles)
            if not set(range(i, j)) & {layer for start, end in parent for layer in range(start, end)}
        }
        sets = [find_repeated_blocks(proposal.route) for proposal in asked.proposals]
        assert {frozenset(block_set) for block_set in sets} == expected
        assert len(sets) == len(expected)
        assert all(len(block_set) == number + 1 for block_set in sets)
    assert len(rounds) == 4


def test_the_beam_ends_when_nothing_can_be_extended():
    whole_model_is_best = BlockBeamSearch(5, 10, 100_000, BlockBeamSettings(beam_width=1, max_span=0))
    rounds, state = _rounds(whole_model_is_best, lambda route, total: Score(total * (route.length == 10), total))
    assert len(rounds) == 1
    assert whole_model_is_best.candidates(state)[0].route == make_route_repeating_block(5, 0, 5)


def _problem(target):
    return PlantedProblem(target, base=0.1, peak=0.9, reach=6, seed=1)


def test_the_sweep_finds_a_planted_block():
    solution = solve_planted(
        BlockSweep(8, 100, 3_700), _problem(make_route_repeating_block(8, 2, 5)), training=100, validation=300
    )
    assert solution.found


def test_the_beam_finds_two_planted_blocks():
    search = BlockBeamSearch(8, 100, 30_000, BlockBeamSettings(beam_width=4, beam_depth=2, max_span=3))
    solution = solve_planted(
        search, _problem(make_route_repeating_blocks(8, [(1, 3), (5, 7)])), training=100, validation=300
    )
    assert solution.found


def test_the_surrogate_leads_to_better_vectors():
    worth = np.linspace(-0.08, 0.08, 12)

    def additive(route, total):
        share = 0.5 + worth @ (np.array(repeat_counts_from_route(route)) - 1)
        return Score(float(np.clip(share, 0, 1)) * total, total)

    search = RYSSurrogateSearch(12, 10, 10_000, RYSSurrogateSettings(rounds=4, proposals=20, pool_size=200))
    _, state = _rounds(search, additive)
    means = [np.mean([draw.outcome.accuracy for draw in state.draws if draw.round == number]) for number in range(4)]
    assert min(means[1:]) > means[0] + 0.1


def test_random_counts_repeat_a_few_layers_or_one_block():
    rng = np.random.default_rng(0)
    for _ in range(300):
        counts = sample_repeat_counts(rng, 9, 3)
        repeated = [layer for layer, count in enumerate(counts) if count > 1]
        one_block = repeated == list(range(repeated[0], repeated[-1] + 1)) and len({counts[x] for x in repeated}) == 1
        assert one_block or len(repeated) <= 4
        assert set(counts) <= {1, 2, 3}


def test_a_missing_scikit_learn_is_named_before_anything_is_spent(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(SettingsError, match=r"scikit-learn: pip install '\.\[peers\]'"):
        RYSSurrogateSearch(6, 50, 10_000, SMALL_SURROGATE).make_initial_state()
    assert RYSSurrogateSearch(6, 50, 10_000, RYSSurrogateSettings(rounds=1)).make_initial_state().rounds == 0
