"""Searches whose size is known before they start: so many routes, each on as many examples as the budget allows."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Route, check_layer_count
from macro_routing.search.example_schedule import MAX_EXAMPLES, check_seed
from macro_routing.search.searcher import (
    Candidate,
    Outcome,
    Proposal,
    Round,
    SearchState,
    check_outcomes,
    check_state,
    rank_draws,
)
from macro_routing.settings import check_integer

_PICKING = 2


class FinalSet(Protocol):
    """What the settings of every such search say about its final set."""

    @property
    def k(self) -> int:
        """Its size."""
        ...

    @property
    def anchored(self) -> bool:
        """Whether the standard pass takes its first place."""
        ...


def examples_per_route(budget: int, configurations: int, available: int, *, name: str, mend: str) -> int:
    """How many examples each of ``configurations`` routes may see; refuse a budget that leaves none."""
    check_integer("budget", budget, minimum=1)
    if budget < configurations:
        raise SettingsError(
            f"budget = {budget} is not allowed: {name} scores up to {configurations} routes, so it must be at least"
            f" {configurations}; give a larger budget or {mend}"
        )
    return min(budget // configurations, available)


def sample_examples(available: int, wanted: int, seed: int) -> tuple[int, ...]:
    """The first ``wanted`` of the seed's order of all examples, so a larger budget sees the same ones and more."""
    order = np.random.default_rng([seed, _PICKING]).permutation(available)
    return tuple(order[:wanted].tolist())


@dataclass(frozen=True)
class BudgetedSearch(ABC):
    """What such searches share; a subclass says how many routes each round has at most, and which ones."""

    layers: int
    examples: int
    budget: int
    """Route × example outcomes that may be asked for."""
    settings: FinalSet
    seed: int = 0

    name: ClassVar[str]
    mend: ClassVar[str]
    """What makes the search smaller, for those whose budget is too small."""

    def __post_init__(self) -> None:
        """Refuse bad seeds, and a budget too small for the design before anything is scored."""
        check_seed(self.seed)
        check_layer_count(self.layers)
        check_integer("examples", self.examples, minimum=1, maximum=MAX_EXAMPLES)
        _ = self.shown

    @cached_property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Most proposals of every round; their sum times the examples is the most that can be asked for."""

    @abstractmethod
    def routes(self, state: SearchState) -> Sequence[Route]:
        """The next round's routes, at most as many as its size; none at all end the search."""

    @cached_property
    def shown(self) -> tuple[int, ...]:
        """The examples that every route is scored on, the same ones in every round, so that all scores compare."""
        wanted = examples_per_route(self.budget, sum(self.sizes), self.examples, name=self.name, mend=self.mend)
        return sample_examples(self.examples, wanted, self.seed)

    @property
    def max_rounds(self) -> int:
        """Most rounds there can be."""
        return len(self.sizes)

    @property
    def max_draws(self) -> int:
        """Most proposals of a round."""
        return max(self.sizes)

    @property
    def max_candidates(self) -> int:
        """Most routes to be validated."""
        return self.settings.k

    def max_evaluations(self, done: int = 0) -> int:
        """Outcomes that the rounds from ``done`` on may ask for."""
        return sum(self.sizes[done:]) * len(self.shown)

    @cached_property
    def identity(self) -> str:
        """What the search is, for recognising its states."""
        return json.dumps({"search": self.name, **dataclasses.asdict(self)}, sort_keys=True)

    def start(self) -> SearchState:
        """The state before the first round."""
        return SearchState(self.identity)

    def ask(self, state: SearchState) -> Round | None:
        """The next round; every score counts, because the final set compares all routes."""
        check_state(self.identity, state)
        if state.rounds >= self.max_rounds:
            return None
        proposals = tuple(Proposal(route) for route in self.routes(state))
        return Round(state.rounds, proposals, self.shown, keep=len(proposals)) if proposals else None

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """Remember the scores."""
        check_outcomes(self.ask(state), asked, outcomes)
        return state.told(asked, outcomes)

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The best different routes by their own scores."""
        check_state(self.identity, state)
        found = [draw.proposal.route for draw in rank_draws(state.draws)]
        if self.settings.anchored:
            found = [Route.standard(self.layers), *(route for route in found if not route.is_standard)]
        return tuple(Candidate(route, rank=rank) for rank, route in enumerate(found[: self.settings.k], 1))
