"""MACRO restarted with fresh seeds until the budget is spent.

A restart begins from the prior with a seed of its own; the first has the given seed and is the paper's search. The
candidates are those of all restarts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from macro_routing.routes.route import Route
from macro_routing.search.macro import MacroSearch, MacroSettings
from macro_routing.search.policy_search import PolicyState
from macro_routing.search.random_streams import RandomStream, make_generator
from macro_routing.search.searcher import Candidate, Outcome, PlannedRound, Round, Searcher, SearchState
from macro_routing.settings import check_integer


@dataclass(frozen=True, eq=False)
class RestartState(SearchState):
    """The state of all restarts."""

    restarts: tuple[PolicyState, ...] = ()
    """One state per restart begun so far, the current one last; draws are in the outer state only."""


@dataclass(frozen=True)
class RestartedSearch(Searcher):
    """MACRO's searches one after the other."""

    first: MacroSearch
    budget: int
    """Maximum number of evaluations (route × example)."""

    name = "macro-restarts"
    state_type = RestartState

    def __post_init__(self) -> None:
        """Reject a budget that does not pay for a round."""
        check_integer("budget", self.budget, minimum=self._smallest_round)

    @property
    def settings(self) -> MacroSettings:
        """Those of every restart."""
        return self.first.settings

    @property
    def _smallest_round(self) -> int:
        """Evaluations of a search's first round, which has the fewest examples."""
        return self.first.settings.draws * len(self.first.round_plan[0].examples)

    @cached_property
    def round_plan(self) -> tuple[PlannedRound, ...]:
        """As many rounds as the budget pays for if all were first rounds."""
        return (self.first.round_plan[0],) * (self.budget // self._smallest_round)

    @property
    def max_candidates(self) -> int:
        """A final set for every restart."""
        return self.settings.k * self.max_rounds

    def max_evaluations(self, done: int = 0) -> int:
        """Maximum number of evaluations in the rounds from ``done`` on."""
        return max(0, self.budget - done * self._smallest_round)

    def _ask(self, state: RestartState) -> Round | None:
        index, inner = self._current_restart(state)
        asked = self.restarted_search(index).ask(inner)
        assert asked is not None  # a search that is over is followed by the next
        spent = sum(self.first.max_evaluations() - self.first.max_evaluations(one.rounds) for one in state.restarts)
        affordable = spent + len(asked.proposals) * len(asked.examples) <= self.budget
        return replace(asked, number=state.rounds) if affordable else None

    def _tell(self, state: RestartState, asked: Round, outcomes: Sequence[Outcome]) -> RestartState:
        index, inner = self._current_restart(state)
        told = self.restarted_search(index).tell(inner, replace(asked, number=inner.rounds), outcomes)
        assert isinstance(told, PolicyState)
        return replace(state, restarts=(*state.restarts[:index], replace(told, draws=())))

    def _candidates(self, state: RestartState) -> tuple[Candidate, ...]:
        """The final sets of all restarts, each different route once, ranked by restart."""
        candidates: dict[Route, Candidate] = {}
        for index, inner in enumerate(state.restarts or (self._current_restart(state)[1],)):
            for candidate in self.restarted_search(index).candidates(inner):
                candidates.setdefault(candidate.route, candidate)
        return tuple(replace(candidate, rank=rank) for rank, candidate in enumerate(candidates.values(), 1))

    def restarted_search(self, index: int) -> MacroSearch:
        """The search of a restart; that of index 0 has the given seed."""
        if index == 0:
            return self.first
        seed = make_generator(self.first.seed, RandomStream.RESTART_SEEDS, index).integers(2**32)
        return replace(self.first, seed=int(seed))

    def _current_restart(self, state: RestartState) -> tuple[int, PolicyState]:
        """Index and state of the restart that the next round belongs to; it may have to be begun."""
        if state.restarts and not self.first.is_over(state.restarts[-1]):
            return len(state.restarts) - 1, state.restarts[-1]
        begun = self.restarted_search(len(state.restarts)).start()
        assert isinstance(begun, PolicyState)
        return len(state.restarts), begun
