"""RYS's sweep of repeat counts: every layer on its own, applied two, three and more times in place."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from macro_routing.errors import RouteError
from macro_routing.routes.route import Route
from macro_routing.search.budgeted_search import BudgetedSearch, FinalSetSettings
from macro_routing.search.searcher import SearchState
from macro_routing.settings import Range, check_fields

MAX_REPEATS = 1000


def route_from_counts(layers: int, counts: Sequence[int]) -> Route:
    """Every layer in order, layer l applied ``counts[l]`` times in place; 0 skips it."""
    if len(counts) != layers or any(count < 0 for count in counts):
        raise RouteError(f"{layers} layers need one count of at least 0 each, not {list(counts)}")
    return Route.from_layers((layer for layer, count in enumerate(counts) for _ in range(count)), layers)


def counts_from_route(route: Route) -> tuple[int, ...] | None:
    """How often ``route`` applies each layer; None for a route that is not determined by that."""
    counts = [0] * route.layers
    for step in route.steps:
        counts[step.layer] += 1
    return tuple(counts) if route_from_counts(route.layers, counts) == route else None


@dataclass(frozen=True)
class RepeatCountSettings(FinalSetSettings):
    """The settings of the sweep of counts."""

    max_repeats: int = 8
    """Maximum number of applications of a layer; the sweep begins at two."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_fields(self, max_repeats=Range(2, MAX_REPEATS))


@dataclass(frozen=True)
class RepeatCountSweep(BudgetedSearch):
    """Each layer with each count, and the standard pass, in one round."""

    settings: RepeatCountSettings = RepeatCountSettings()

    name = "rys-counts"
    remedy = "a smaller max_repeats"

    @cached_property
    def round_sizes(self) -> tuple[int, ...]:
        """All of it in one round."""
        return (1 + self.layers * (self.settings.max_repeats - 1),)

    def _propose_routes(self, state: SearchState) -> list[Route]:  # noqa: ARG002 nothing is learnt on the way
        """The standard pass, then every layer with every count."""
        once = [1] * self.layers
        return [
            route_from_counts(self.layers, once),
            *(
                route_from_counts(self.layers, [*once[:layer], count, *once[layer + 1 :]])
                for layer in range(self.layers)
                for count in range(2, self.settings.max_repeats + 1)
            ),
        ]
