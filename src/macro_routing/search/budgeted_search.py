"""Searches with a number of routes known beforehand, each scored on as many examples as the budget allows."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Route, check_layer_count
from macro_routing.search.example_schedule import sample_examples
from macro_routing.search.searcher import (
    Candidate,
    PlannedRound,
    Proposal,
    Round,
    Searcher,
    SearchState,
    rank_candidates,
)
from macro_routing.settings import Range, check_fields, check_integer


@dataclass(frozen=True)
class FinalSetSettings:
    """The settings of every search whose candidates are its best routes by their own scores."""

    k: int = field(default=5, kw_only=True)
    """Size of the final set: the k best different routes by their own scores."""
    anchored: bool = field(default=False, kw_only=True)
    """Whether the standard pass takes the first place of the final set."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        check_fields(self, k=Range(1))


def examples_per_route(budget: int, routes: int, available: int, *, name: str, remedy: str) -> int:
    """How many examples each of ``routes`` routes may be scored on; reject a budget that leaves none."""
    check_integer("budget", budget, minimum=1)
    if budget < routes:
        raise SettingsError(
            f"budget = {budget} is not allowed: {name} scores up to {routes} routes, so it must be at least"
            f" {routes}; give a larger budget or {remedy}"
        )
    return min(budget // routes, available)


@dataclass(frozen=True)
class BudgetedSearch(Searcher):
    """A search that says how many routes each round has at most, and which ones."""

    layers: int
    examples: int
    budget: int
    """Maximum number of evaluations (route × example)."""
    settings: Any
    """A ``FinalSetSettings`` with the fields of the search."""
    seed: int = 0

    remedy: ClassVar[str]
    """What makes the search smaller, for the message about a budget that is too small."""

    def __post_init__(self) -> None:
        """Reject bad seeds, and a budget too small for all routes."""
        check_layer_count(self.layers)
        super().__post_init__()

    @property
    @abstractmethod
    def round_sizes(self) -> tuple[int, ...]:
        """Maximum number of routes of every round; their sum times the examples stays within the budget."""

    @abstractmethod
    def _propose_routes(self, state: SearchState) -> Sequence[Route]:
        """The next round's routes, at most as many as its size; none end the search."""

    @cached_property
    def round_plan(self) -> tuple[PlannedRound, ...]:
        """All rounds have the same examples, so that all scores are comparable."""
        routes = sum(self.round_sizes)
        wanted = examples_per_route(self.budget, routes, self.examples, name=self.name, remedy=self.remedy)
        examples = sample_examples(self.examples, wanted, self.seed)
        return tuple(PlannedRound(size, examples) for size in self.round_sizes)

    def _ask(self, state: SearchState) -> Round | None:
        return self._make_round(state, [Proposal(route) for route in self._propose_routes(state)])

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The best different routes by their own scores."""
        self.check_state(state)
        first = Route.standard(self.layers) if self.settings.anchored else None
        return rank_candidates(state.draws, self.settings.k, first)
