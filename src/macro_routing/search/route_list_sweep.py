"""Sweeps over a list of routes known beforehand: early exits, dropped layers, or the standard pass alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Route
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.searcher import Candidate, SearchState


@dataclass(frozen=True)
class RouteListSweep(BudgetedSearch):
    """One round over given routes, all on the same examples."""

    settings: FinalSetSettings = field(default_factory=FinalSetSettings)
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
    def round_sizes(self) -> tuple[int, ...]:
        """All routes in one round."""
        return (len(self.routes),)

    def _identity_fields(self) -> dict[str, Any]:
        return {**super()._identity_fields(), "routes": [str(route) for route in self.routes]}

    def _propose_routes(self, state: SearchState) -> Sequence[Route]:  # noqa: ARG002 the list is fixed
        return self.routes


@dataclass(frozen=True)
class StandardOnly(BudgetedSearch):
    """No search at all: the standard pass, so that it can be compared like any other method."""

    settings: FinalSetSettings = field(default_factory=FinalSetSettings)

    name = "standard"
    round_sizes = ()
    round_plan = ()

    def _propose_routes(self, state: SearchState) -> Sequence[Route]:  # noqa: ARG002 nothing is searched
        return ()

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The standard pass."""
        self.check_state(state)
        return (Candidate(Route.standard(self.layers), rank=1),)


def list_early_exits(layers: int) -> tuple[Route, ...]:
    """The first layers alone, for every layer after which the model could stop; its head reads the state there."""
    return tuple(Route.from_layers(range(end), layers) for end in range(1, layers))


def drop_least_influential(influence: Sequence[float], max_dropped: int) -> tuple[Route, ...]:
    """The standard pass without the 1, 2, … ``max_dropped`` layers of least influence, ties to the earlier layer."""
    layers = len(influence)
    order = sorted(range(layers), key=lambda layer: (influence[layer], layer))
    kept = [sorted(order[count:]) for count in range(1, min(max_dropped, layers - 1) + 1)]
    return tuple(Route.from_layers(rest, layers) for rest in kept)
