"""Dr.LLM and CoLA in numbers: which examples get a tree search, how large it is, and what a router learns from.

Published are 100 examples with 10 simulations each. A budget beyond that buys more examples first, then more
simulations; the standard pass of an example is one outcome, every simulation at most one more.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.example_schedule import sample_examples
from macro_routing.search.random_streams import check_seed
from macro_routing.search.searcher import MAX_EXAMPLES
from macro_routing.search.tree_actions import LayerEdits, ProgramEdits
from macro_routing.search.tree_search import TreeSearch, TreeSettings, run_in_lockstep
from macro_routing.settings import check_integer

PUBLISHED_EXAMPLES = 100


@dataclass(frozen=True)
class ColaSettings(TreeSettings):
    """The settings of CoLA: a search per test example, with its answer known."""

    min_layers_saved: int = 1
    """CoLA asks for any shorter path that is right."""


@dataclass(frozen=True)
class DrLLMSettings(RouterSettings, TreeSettings):
    """The settings of Dr.LLM: its search for labels, and its routers."""

    @property
    def tree(self) -> TreeSettings:
        """Those of the search."""
        found: TreeSettings = _part(TreeSettings, self)
        return found

    @property
    def router(self) -> RouterSettings:
        """Those of the routers."""
        found: RouterSettings = _part(RouterSettings, self)
        return found

    def __post_init__(self) -> None:
        """Each part refuses its own."""
        _ = self.tree, self.router


def _part(kind: type[Any], settings: Any) -> Any:
    return kind(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(kind)})


@dataclass(frozen=True)
class LabelSearch:
    """Tree searches over some examples, all in step; what a run needs to know of them beforehand."""

    space: RouteSpace
    examples: int
    """There are so many."""
    settings: TreeSettings
    budget: int | None = None
    """Outcomes that may be asked for; None: what is published."""
    seed: int = 0
    extended: bool = False
    """Whether MACRO's actions are searched instead of skips and repeats."""
    every_example: bool = False
    """Whether all examples are searched, as an oracle does; else as many as are published or the budget allows."""

    def __post_init__(self) -> None:
        """Refuse a budget that does not pay for one example."""
        check_seed(self.seed)
        check_integer("examples", self.examples, minimum=1, maximum=MAX_EXAMPLES)
        needed = 2 * self.examples if self.every_example else self.settings.simulations + 1
        if self.budget is not None and self.budget < needed:
            raise SettingsError(
                f"budget = {self.budget} is not allowed: these tree searches need {needed} outcomes at least;"
                f" give a larger budget or fewer {'test examples' if self.every_example else 'simulations'}"
            )

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """The examples that are searched."""
        if self.every_example:
            return tuple(range(self.examples))
        affordable = PUBLISHED_EXAMPLES if self.budget is None else self.budget // (self.settings.simulations + 1)
        return sample_examples(self.examples, min(self.examples, affordable), self.seed)

    @property
    def simulations(self) -> int:
        """Per example."""
        if self.budget is None:
            return self.settings.simulations
        affordable = self.budget // len(self.chosen) - 1
        return affordable if self.every_example else max(self.settings.simulations, affordable)

    @property
    def max_rounds(self) -> int:
        """All of it is one round."""
        return 1

    @property
    def max_draws(self) -> int:
        """Routes per example, at most."""
        return self.simulations + 1

    @property
    def max_candidates(self) -> int:
        """Nothing is validated."""
        return 0

    def max_evaluations(self, done: int = 0) -> int:
        """Outcomes that may be asked for."""
        return 0 if done else len(self.chosen) * self.max_draws

    @cached_property
    def identity(self) -> str:
        """What the search is."""
        return json.dumps({"search": "tree", **dataclasses.asdict(self)}, sort_keys=True)

    def run(self, score: Callable[[list[tuple[int, Route]]], Sequence[float]]) -> list[TreeSearch[Any]]:
        """Every chosen example's search at its end; ``score`` answers (place among all examples, route) pairs."""
        actions: Any = ProgramEdits(self.space) if self.extended else LayerEdits(self.space.layers)
        settings = dataclasses.replace(_part(TreeSettings, self.settings), simulations=self.simulations)
        searches = [TreeSearch(actions, settings, self.seed, example=place) for place in self.chosen]
        run_in_lockstep(searches, lambda asked: score([(self.chosen[place], route) for place, route in asked]))
        return searches
