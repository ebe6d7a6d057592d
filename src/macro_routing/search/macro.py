"""MACRO's search: draw programs, score them, move the policy to the best, decode it (paper, "Method"; §3-4)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from macro_routing.errors import SearchError
from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.policy_search import PolicySamplingSearcher, PolicySearcherBase, PolicySearchState
from macro_routing.search.policy_settings import FINAL_SETS, PAPER_STREAM, MacroSettings
from macro_routing.search.random_streams import RandomStreamPurpose, make_generator
from macro_routing.search.searcher import (
    Candidate,
    Draw,
    Outcome,
    Proposal,
    Round,
    RoundSize,
    Score,
    Searcher,
    SearchState,
    rank_draws,
)
from macro_routing.search.top_k import (
    decode_routes_by_total_probability,
    decode_standard_and_top_routes,
    decode_top_programs,
    decode_top_routes,
)
from macro_routing.settings import check_integer

_FINAL_SET_DECODERS = {
    "distinct": decode_top_routes,
    "raw": decode_top_programs,
    "anchored": decode_standard_and_top_routes,
    "marginal": decode_routes_by_total_probability,
}
assert tuple(_FINAL_SET_DECODERS) == FINAL_SETS


@dataclass(frozen=True)
class MacroSearch(PolicySamplingSearcher, PolicySearcherBase):
    """MACRO over one route space and ``examples`` training examples."""

    space: RouteSpace
    examples: int
    settings: MacroSettings = field(default_factory=MacroSettings)
    seed: int = 0

    name = "macro"

    def _ask(self, state: PolicySearchState) -> Round | None:
        return self._sample_round(
            state, self.policy(state), temperature=self.settings.temperature, keep=self.settings.elite
        )

    def _tell(self, state: PolicySearchState, asked: Round, outcomes: Sequence[Outcome]) -> PolicySearchState:
        """Move the policy to the elite; failed draws never belong to it."""
        programs, weights = compute_elite_weights(asked.proposals, outcomes, self.settings.elite, self.settings.beta)
        policy = self.policy(state).update_from_programs(
            programs, weights, self.settings.alpha, self.settings.smoothing
        )
        # A policy that samples only one route would sample it in every later round, too.
        converged = len(asked.proposals) > 1 and len({proposal.route for proposal in asked.proposals}) == 1
        return replace(state, policy_table=policy.table, stopped=converged)

    def _list_candidates(self, state: PolicySearchState) -> tuple[Candidate, ...]:
        """The final set, decoded exactly."""
        return _FINAL_SET_DECODERS[self.settings.final_set](self.policy(state), self.settings.k)

    def candidate_of_most_probable_program(self, state: SearchState) -> Candidate:
        """The variant "top-1": the route of the single most probable program, without validation."""
        return decode_top_programs(self.policy(state), 1)[0]

    def best_draw(self, state: SearchState) -> Draw | None:
        """The variant "no Vit.": the best drawn route on its own examples; None if nothing was scored."""
        return next(iter(rank_draws(state.draws)), None)


def select_elite(outcomes: Sequence[Outcome], size: int) -> list[int]:
    """Indices of the ``size`` best scores, best first, ties by earlier draw; failures are never among them."""
    accuracies = _accuracies_of_scored_draws(outcomes)
    return sorted(accuracies, key=lambda index: (-accuracies[index], index))[:size]


def compute_elite_weights(
    proposals: Sequence[Proposal], outcomes: Sequence[Outcome], size: int, beta: float
) -> tuple[list[Program], list[float]]:
    """The elite's programs with weights ∝ exp(β (q - max q)) that sum to 1; both empty if every draw failed."""
    elite = select_elite(outcomes, size)
    accuracies = _accuracies_of_scored_draws(outcomes)
    raw = np.array([math.exp(beta * (accuracies[index] - accuracies[elite[0]])) for index in elite])
    programs = [program for program in (proposals[index].program for index in elite) if program is not None]
    return programs, (raw / raw.sum()).tolist() if elite else []


def _accuracies_of_scored_draws(outcomes: Sequence[Outcome]) -> dict[int, float]:
    """The accuracies of the draws that could be scored."""
    return {index: outcome.accuracy for index, outcome in enumerate(outcomes) if isinstance(outcome, Score)}


def select_candidate(
    candidates: Sequence[Candidate],
    validation: Sequence[Outcome],
    score_on_training: Callable[[Sequence[Candidate]], Sequence[Outcome]],
) -> Candidate:
    """The candidate with the best validation accuracy.

    Ties go to the better accuracy on the whole training set, which ``score_on_training`` is asked for only
    then and for the tied ones only; then to the shorter route, then to the more probable program.
    """
    if len(candidates) != len(validation):
        raise SearchError(f"there are {len(candidates)} candidates but {len(validation)} validation outcomes")
    scored = [
        (candidate, outcome)
        for candidate, outcome in zip(candidates, validation, strict=True)
        if isinstance(outcome, Score)
    ]
    if not scored:
        raise SearchError("no candidate could be scored on the validation set, so none can be selected")
    best = max(outcome.accuracy for _, outcome in scored)
    tied = [candidate for candidate, outcome in scored if outcome.accuracy == best]
    if len(tied) == 1:
        return tied[0]
    training = score_on_training(tied)
    return min(zip(tied, training, strict=True), key=lambda pair: _tie_break_key(*pair))[0]


def _tie_break_key(candidate: Candidate, training: Outcome) -> tuple[float, int, float]:
    accuracy = training.accuracy if isinstance(training, Score) else -math.inf
    probability = -math.inf if candidate.log_probability is None else candidate.log_probability
    return -accuracy, candidate.route.length, -probability


# --- restarts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RestartedSearchState(SearchState):
    """The state of all restarts."""

    restarts: tuple[PolicySearchState, ...] = ()
    """One state per restart begun so far, the current one last; draws are in the outer state only."""


@dataclass(frozen=True)
class RestartedSearch(Searcher):
    """MACRO restarted with fresh seeds until the budget is spent.

    A restart begins from the prior with a seed of its own; the first has the given seed and is the paper's search. The
    candidates are those of all restarts.
    """

    first: MacroSearch
    budget: int
    """Maximum number of evaluations (route × example)."""

    name = "macro-restarts"
    state_type = RestartedSearchState

    def __post_init__(self) -> None:
        """Reject a budget that does not pay for a round."""
        check_integer("budget", self.budget, minimum=self._min_round_evaluations)

    @property
    def settings(self) -> MacroSettings:
        """Those of every restart."""
        return self.first.settings

    @property
    def _min_round_evaluations(self) -> int:
        """Evaluations of a search's first round, which has the fewest examples."""
        return self.first.settings.draws * len(self.first.planned_round_sizes[0].examples)

    @cached_property
    def planned_round_sizes(self) -> tuple[RoundSize, ...]:
        """As many rounds as the budget pays for if all were first rounds."""
        return (self.first.planned_round_sizes[0],) * (self.budget // self._min_round_evaluations)

    @property
    def max_candidates(self) -> int:
        """A final set for every restart."""
        return self.settings.k * self.max_rounds

    def max_evaluations(self, done: int = 0) -> int:
        """Maximum number of evaluations in the rounds from ``done`` on."""
        return max(0, self.budget - done * self._min_round_evaluations)

    def _ask(self, state: RestartedSearchState) -> Round | None:
        index, inner = self._current_restart(state)
        asked = self.build_search_of_restart(index).ask(inner)
        assert asked is not None  # a search that is over is followed by the next
        spent = sum(self.first.max_evaluations() - self.first.max_evaluations(inner.rounds) for inner in state.restarts)
        affordable = spent + len(asked.proposals) * len(asked.examples) <= self.budget
        return replace(asked, number=state.rounds) if affordable else None

    def _tell(self, state: RestartedSearchState, asked: Round, outcomes: Sequence[Outcome]) -> RestartedSearchState:
        index, inner = self._current_restart(state)
        learned = self.build_search_of_restart(index).tell(inner, replace(asked, number=inner.rounds), outcomes)
        assert isinstance(learned, PolicySearchState)
        # The paper's stream counts its numbers by what was drawn with them; else the draws are those of this state.
        draws = learned.draws if self.first.settings.stream == PAPER_STREAM else ()
        return replace(state, restarts=(*state.restarts[:index], replace(learned, draws=draws)))

    def _list_candidates(self, state: RestartedSearchState) -> tuple[Candidate, ...]:
        """The final sets of all restarts, each different route once, ranked by restart."""
        candidates: dict[Route, Candidate] = {}
        for index, inner in enumerate(state.restarts or (self._current_restart(state)[1],)):
            for candidate in self.build_search_of_restart(index).candidates(inner):
                candidates.setdefault(candidate.route, candidate)
        return tuple(replace(candidate, rank=rank) for rank, candidate in enumerate(candidates.values(), 1))

    def build_search_of_restart(self, index: int) -> MacroSearch:
        """The search of a restart; that of index 0 has the given seed."""
        if index == 0:
            return self.first
        seed = make_generator(self.first.seed, RandomStreamPurpose.RESTART_SEEDS, index).integers(2**32)
        return replace(self.first, seed=int(seed))

    def _current_restart(self, state: RestartedSearchState) -> tuple[int, PolicySearchState]:
        """Index and state of the restart that the next round belongs to; it may have to be begun."""
        if state.restarts and not self.first.is_over(state.restarts[-1]):
            return len(state.restarts) - 1, state.restarts[-1]
        return len(state.restarts), self.build_search_of_restart(len(state.restarts)).make_initial_state()
