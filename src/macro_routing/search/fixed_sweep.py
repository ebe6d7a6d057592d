"""A list of routes that is known beforehand, scored once: early exits, layers dropped, the standard pass alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from macro_routing.errors import SettingsError
from macro_routing.routes.route import Route, Step
from macro_routing.search.budget import BudgetedSearch
from macro_routing.search.searcher import Candidate, SearchState
from macro_routing.settings import check_boolean, check_integer


@dataclass(frozen=True)
class FixedSettings:
    """The settings of a sweep over given routes."""

    k: int = 5
    """Size of the final set: the k best by their own scores."""
    anchored: bool = False
    """Whether the standard pass takes the first place of the final set."""

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        check_integer("k", self.k, minimum=1)
        check_boolean("anchored", self.anchored)


@dataclass(frozen=True)
class FixedSweep(BudgetedSearch):
    """One round over given routes, all on the same examples; a pure function of its fields."""

    settings: FixedSettings = FixedSettings()
    listed: tuple[Route, ...] = ()
    method: str = "a sweep of given routes"

    mend = "use another method"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The method that listed the routes."""
        return self.method

    def __post_init__(self) -> None:
        """Refuse an empty list: a model of one layer has nothing to leave out."""
        if not self.listed:
            raise SettingsError(f"{self.method} has no route to try on {self.layers} layers; use another method")
        super().__post_init__()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """All of it in one round."""
        return (len(self.listed),)

    @cached_property
    def identity(self) -> str:
        """What the search is, routes in the short notation."""
        facts = {"search": "fixed-sweep", "layers": self.layers, "examples": self.examples, "budget": self.budget}
        settings = {"k": self.settings.k, "anchored": self.settings.anchored}
        routes = [str(route) for route in self.listed]
        return json.dumps({**facts, "seed": self.seed, "settings": settings, "routes": routes}, sort_keys=True)

    def routes(self, state: SearchState) -> Sequence[Route]:  # noqa: ARG002 nothing is learnt on the way
        """All that are listed."""
        return self.listed


@dataclass(frozen=True)
class StandardOnly(BudgetedSearch):
    """No search at all: the standard pass, so that it can be compared like any other."""

    settings: FixedSettings = FixedSettings()

    name = "standard"
    mend = "nothing"
    sizes = ()
    shown = ()

    @property
    def max_draws(self) -> int:
        """None are made."""
        return 0

    def routes(self, state: SearchState) -> Sequence[Route]:  # noqa: ARG002 nothing is searched
        """None."""
        return ()

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:  # noqa: ARG002 nothing was searched
        """The standard pass."""
        return (Candidate(Route.standard(self.layers), rank=1),)


def list_early_exits(layers: int) -> tuple[Route, ...]:
    """The first layers alone, for every layer after which a model could stop; its own head reads the state there."""
    return tuple(Route(tuple(Step(layer) for layer in range(end)), layers) for end in range(1, layers))


def drop_least_influential(influence: Sequence[float], most: int) -> tuple[Route, ...]:
    """The standard pass without the 1, 2, … ``most`` layers of least influence, ties to the earlier layer."""
    layers = len(influence)
    order = sorted(range(layers), key=lambda layer: (influence[layer], layer))
    kept = [sorted(order[count:]) for count in range(1, min(most, layers - 1) + 1)]
    return tuple(Route(tuple(Step(layer) for layer in rest), layers) for rest in kept)
