import dataclasses

import numpy as np
import pytest

from macro_routing.errors import SearchError, SettingsError
from macro_routing.routes import RouteSpace, parse_route
from macro_routing.search import Candidate, MacroSearch, MacroSettings, Score, ScoringFailure, select_candidate
from macro_routing.search.macro import compute_elite_weights, select_elite
from macro_routing.search.random_streams import assign_examples_to_rounds
from macro_routing.search.searcher import Proposal

SPACE = RouteSpace(8, max_length=12)


def test_chunks_are_disjoint_and_the_buffer_grows():
    rounds = assign_examples_to_rounds(103, 10, 0.1, seed=3)
    fresh = []
    for number, examples in enumerate(rounds):
        kept = number  # one of each chunk of ten or eleven
        fresh.append(examples[: len(examples) - kept])
        buffer = examples[len(examples) - kept :]
        assert len(set(examples)) == len(examples)
        assert set(buffer) <= {example for chunk in fresh[:-1] for example in chunk}
    assert sorted(example for chunk in fresh for example in chunk) == list(range(103))
    assert {len(chunk) for chunk in fresh} == {10, 11}
    assert assign_examples_to_rounds(103, 10, 0.1, seed=3) == rounds
    assert assign_examples_to_rounds(103, 10, 0.1, seed=4) != rounds


def test_replay_draws_at_least_one_and_none_when_off():
    assert [len(examples) for examples in assign_examples_to_rounds(6, 3, 0.01, seed=0)] == [2, 3, 4]
    assert [len(examples) for examples in assign_examples_to_rounds(6, 3, 0.0, seed=0)] == [2, 2, 2]


def test_too_few_examples_are_rejected_by_name():
    with pytest.raises(SettingsError, match=r"iterations \(I\) = 10 .* 9 training examples"):
        MacroSearch(SPACE, 9)


def test_elite_ties_go_to_the_earlier_draw_and_failures_are_out():
    outcomes = [Score(1, 4), ScoringFailure("no"), Score(3, 4), Score(3, 4), Score(2, 4)]
    assert select_elite(outcomes, 2) == [2, 3]
    assert select_elite(outcomes, 9) == [2, 3, 4, 0]


def test_elite_weights_are_the_papers():
    route = parse_route("L0 RJ", 8)
    proposals = [Proposal(route, route.program_with_earliest_rejoin())] * 3
    _, weights = compute_elite_weights(proposals, [Score(1, 4), Score(3, 4), Score(2, 4)], 2, beta=1.8262)
    raw = np.exp([0.0, 1.8262 * (0.5 - 0.75)])
    assert weights == pytest.approx(raw / raw.sum())


def _run(search, score):
    state = search.make_initial_state()
    while (asked := search.ask(state)) is not None:
        state = search.tell(state, asked, [score(proposal.route, len(asked.examples)) for proposal in asked.proposals])
    return state


def test_search_stops_when_all_draws_are_one_route_and_that_round_counts():
    settings = MacroSettings(iterations=10, draws=10, elite=10, alpha=1e-9, epsilon_local=0.05, epsilon_operator=0.0)
    search = MacroSearch(SPACE, 100, settings, seed=1)
    state = _run(search, lambda route, n: Score(n if route.is_standard else 0, n))
    assert state.stopped
    assert state.rounds < 10
    last = [draw for draw in state.draws if draw.round == state.rounds - 1]
    assert len(last) == 10
    assert len({draw.proposal.route for draw in last}) == 1
    assert search.ask(state) is None


def test_a_single_draw_never_stops_the_search():
    search = MacroSearch(SPACE, 20, MacroSettings(iterations=4, draws=1, elite=1), seed=0)
    assert _run(search, lambda _, n: Score(n, n)).rounds == 4


def test_all_failures_leave_the_policy_as_it_is():
    search = MacroSearch(SPACE, 20, MacroSettings(iterations=2, draws=4, elite=2), seed=0)
    state = _run(search, lambda _route, _n: ScoringFailure("out of memory"))
    assert (state.policy_table == search.make_initial_state().policy_table).all()
    assert search.best_draw(state) is None
    assert search.candidates(state)


def test_variants_are_readable_from_the_final_state():
    search = MacroSearch(SPACE, 100, MacroSettings(final_set="anchored"), seed=5)
    state = _run(search, lambda route, n: Score(n if route.length == 9 else n // 2, n))
    top = search.candidate_of_most_probable_program(state)
    assert top.raw_rank == 1
    best = search.best_draw(state)
    assert best.outcome.accuracy == max(draw.outcome.accuracy for draw in state.draws)
    assert search.candidates(state)[0].route.is_standard
    assert len(search.candidates(state)) == 5


def test_best_draw_ties_go_to_more_examples_then_shorter_then_earlier():
    search = MacroSearch(SPACE, 100, MacroSettings(iterations=5, draws=6, elite=3), seed=2)
    state = _run(search, lambda _, n: Score(n, n))
    best = search.best_draw(state)
    most = max(draw.outcome.total for draw in state.draws)
    among = [draw for draw in state.draws if draw.outcome.total == most]
    shortest = min(draw.proposal.route.length for draw in among)
    assert best == next(draw for draw in among if draw.proposal.route.length == shortest)


def test_raw_final_set_is_the_papers():
    search = MacroSearch(SPACE, 100, MacroSettings(final_set="raw"), seed=5)
    candidates = search.candidates(search.make_initial_state())
    assert candidates[0].raw_rank == 1
    assert all(candidate.raw_rank <= 5 for candidate in candidates)


def test_one_and_one_point_zero_are_one_setting():
    assert (
        MacroSearch(SPACE, 100, MacroSettings(alpha=1)).identity
        == MacroSearch(SPACE, 100, MacroSettings(alpha=1.0)).identity
    )


def test_seeds_and_sizes_have_bounds():
    for settings in ({"seed": 2**32}, {"seed": -1}, {"examples": 10**12}):
        with pytest.raises(SettingsError, match=next(iter(settings))):
            MacroSearch(**{"space": SPACE, "examples": 100, **settings})


def test_another_searchs_state_is_rejected():
    state = MacroSearch(SPACE, 100).make_initial_state()
    with pytest.raises(SearchError, match="another search"):
        MacroSearch(SPACE, 100, MacroSettings(elite=6)).ask(state)


def test_answers_are_checked():
    search = MacroSearch(SPACE, 100)
    state = search.make_initial_state()
    asked = search.ask(state)
    with pytest.raises(SearchError, match="29 outcomes"):
        search.tell(state, asked, [Score(0, 10)] * 29)
    with pytest.raises(SearchError, match="over 9 examples"):
        search.tell(state, asked, [Score(0, 9)] * 30)
    with pytest.raises(SearchError, match="was not asked"):
        search.tell(state, dataclasses.replace(asked, number=1), [Score(0, 10)] * 30)
    for wrong in (0.5, None, "good"):
        with pytest.raises(SearchError, match=r"tell a Score\(correct, total\) or a ScoringFailure\(reason\)"):
            search.tell(state, asked, [wrong] * 30)
    with pytest.raises(SearchError, match="reason"):
        ScoringFailure(None)
    for wrong in (float("nan"), -1, 11, "many"):
        with pytest.raises(SearchError, match="is not a score"):
            Score(wrong, 10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"elite": 31}, r"elite \(m\) = 31"),
        ({"k": 0}, "k = 0"),
        ({"draws": 0, "elite": 0}, r"draws \(K\)"),
        ({"temperature": 0.0}, r"temperature \(τ\)"),
        ({"epsilon_local": 0.95}, "at most 1"),
        ({"final_set": "row"}, "did you mean 'raw'"),
        ({"replay": 1.5}, r"replay \(λ\)"),
        ({"alpha": float("nan")}, r"alpha \(α\)"),
        ({"alpha": 10**400}, r"alpha \(α\)"),
        ({"temperature": 5e-324}, r"temperature \(τ\)"),
        ({"k": 10**30}, "k = 1000"),
    ],
)
def test_impossible_settings_are_rejected_by_name(settings, message):
    with pytest.raises(SettingsError, match=message):
        MacroSettings(**settings)


class TestSelection:
    short, long, wide = (Candidate(parse_route(text, 8)) for text in ("L0 L2 RJ", "L0 L0 RJ", "L0 L1 L0 RJ"))

    def test_best_validation_wins_and_training_is_not_scored(self):
        def never(_):
            pytest.fail("training scores are for ties only")

        assert select_candidate([self.short, self.long], [Score(1, 4), Score(2, 4)], never) is self.long

    def test_ties_are_scored_on_training_and_only_they(self):
        asked = []

        def training(tied):
            asked.extend(tied)
            return [Score(1, 9), Score(2, 9)]

        chosen = select_candidate([self.short, self.wide, self.long], [Score(2, 4), Score(1, 4), Score(2, 4)], training)
        assert chosen is self.long
        assert asked == [self.short, self.long]

    def test_then_the_shorter_then_the_more_probable(self):
        tie = [Score(1, 4)] * 2
        assert select_candidate([self.long, self.short], tie, lambda tied: [Score(1, 9)] * len(tied)) is self.short
        rare, common = (dataclasses.replace(self.long, log_probability=value) for value in (-5.0, -2.0))
        assert select_candidate([rare, common], tie, lambda tied: [Score(1, 9)] * len(tied)) is common

    def test_failed_candidates_are_never_chosen(self):
        assert select_candidate([self.short, self.long], [ScoringFailure("x"), Score(0, 4)], lambda _: []) is self.long
        with pytest.raises(SearchError, match="1 candidates but 2"):
            select_candidate([self.short], [Score(0, 4)] * 2, lambda _: [])
        with pytest.raises(SearchError, match="none can be selected"):
            select_candidate([self.short], [ScoringFailure("x")], lambda _: [])
