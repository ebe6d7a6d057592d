"""Searches with a number of routes known beforehand, each scored on as many examples as the budget allows.

Here are also those that score a list of routes: early exits, dropped layers, or the standard pass alone.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Route, check_layer_count_in_range
from macro_routing.search.fixed_route_count_settings import FixedRouteCountSettings
from macro_routing.search.random_streams import sample_examples
from macro_routing.search.searcher import (
    Candidate,
    Draw,
    Proposal,
    Round,
    RoundSize,
    Searcher,
    SearchState,
    rank_draws,
)
from macro_routing.settings import check_integer


@dataclass(frozen=True)
class FixedRouteCountSearch(Searcher):
    """A search that says how many routes each round has at most, and which ones."""

    layers: int
    examples: int
    budget: int
    """Maximum number of evaluations (route × example)."""
    settings: FixedRouteCountSettings
    """A subclass has the fields of the search."""
    seed: int = 0

    remedy: ClassVar[str]
    """What makes the search smaller, for the message about a budget that is too small."""

    def __post_init__(self) -> None:
        """Reject bad seeds, and a budget too small for all routes."""
        check_layer_count_in_range(self.layers)
        super().__post_init__()

    @property
    @abstractmethod
    def max_routes_by_round(self) -> tuple[int, ...]:
        """Maximum number of routes of every round; their sum times the examples stays within the budget."""

    @abstractmethod
    def _propose_routes(self, state: SearchState) -> Sequence[Route]:
        """The next round's routes, at most as many as its size; none end the search."""

    @cached_property
    def planned_round_sizes(self) -> tuple[RoundSize, ...]:
        """All rounds have the same examples, so that all scores are comparable."""
        routes = sum(self.max_routes_by_round)
        check_integer("budget", self.budget, minimum=1)
        if self.budget < routes:
            raise SettingsError(
                f"budget = {self.budget} is not allowed: {self.name} scores up to {routes} routes, so it must be at"
                f" least {routes}; give a larger budget or {self.remedy}"
            )
        examples = sample_examples(self.examples, min(self.budget // routes, self.examples), self.seed)
        return tuple(RoundSize(size, examples) for size in self.max_routes_by_round)

    def _ask(self, state: SearchState) -> Round | None:
        return self._make_round_from_proposals(state, [Proposal(route) for route in self._propose_routes(state)])

    def _list_candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        return select_best_routes(self.settings, state.draws, self.layers)


@dataclass(frozen=True)
class RouteListSearch(FixedRouteCountSearch):
    """One round over the routes of a list, all on the same examples."""

    settings: FixedRouteCountSettings = field(default_factory=FixedRouteCountSettings)
    routes: tuple[Route, ...] = ()
    method: str = "a sweep of given routes"

    remedy = "use another method"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The method that listed the routes."""
        return self.method

    def __post_init__(self) -> None:
        """Reject an empty list: a model of one layer has nothing to leave out."""
        if not self.routes:
            raise SettingsError(f"{self.method} has no route to try on {self.layers} layers; use another method")
        super().__post_init__()

    @property
    def max_routes_by_round(self) -> tuple[int, ...]:
        """All routes in one round."""
        return (len(self.routes),)

    def _search_identity_fields(self) -> dict[str, Any]:
        return {**super()._search_identity_fields(), "routes": [str(route) for route in self.routes]}

    def _propose_routes(self, state: SearchState) -> Sequence[Route]:  # noqa: ARG002 the list is fixed
        return self.routes


@dataclass(frozen=True)
class StandardPassMethod(FixedRouteCountSearch):
    """No search at all: the standard pass, so that it can be compared like any other method."""

    settings: FixedRouteCountSettings = field(default_factory=FixedRouteCountSettings)

    name = "standard"
    max_routes_by_round = ()
    planned_round_sizes = ()

    def _propose_routes(self, state: SearchState) -> Sequence[Route]:  # noqa: ARG002 nothing is searched
        return ()

    def _list_candidates(self, state: SearchState) -> tuple[Candidate, ...]:  # noqa: ARG002 nothing was scored
        return (Candidate(Route.standard(self.layers), rank=1),)


def select_best_routes(settings: FixedRouteCountSettings, draws: Sequence[Draw], layers: int) -> tuple[Candidate, ...]:
    """The final set: the ``k`` best different routes by their own scores."""
    proposals = [draw.proposal for draw in rank_draws(draws)]
    if settings.anchored:
        standard = Proposal(Route.standard(layers))
        proposals = [standard, *(proposal for proposal in proposals if not proposal.route.is_standard)]
    ranked = enumerate(proposals[: settings.k], 1)
    return tuple(Candidate(proposal.route, proposal.program, rank=rank) for rank, proposal in ranked)


def list_early_exit_routes(layers: int) -> tuple[Route, ...]:
    """The first layers alone, for every layer after which the model could stop; its head reads the state there."""
    return tuple(Route.from_layers(range(end), layers) for end in range(1, layers))


def list_layer_drop_routes(influence: Sequence[float], max_dropped: int) -> tuple[Route, ...]:
    """The standard pass without the 1, 2, … ``max_dropped`` layers of least influence, ties to the earlier layer."""
    layers = len(influence)
    order = sorted(range(layers), key=lambda layer: (influence[layer], layer))
    kept = [sorted(order[count:]) for count in range(1, min(max_dropped, layers - 1) + 1)]
    return tuple(Route.from_layers(rest, layers) for rest in kept)
