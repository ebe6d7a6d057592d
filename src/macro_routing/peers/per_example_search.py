"""The tree searches of Dr.LLM and CoLA: which examples are searched, and with how many simulations.

Published are 100 examples with 10 simulations each. A larger budget buys more examples first, then more simulations;
the standard pass of an example is one evaluation, every simulation at most one more.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from macro_routing.errors import SettingsError
from macro_routing.peers.per_example_settings import select_settings_fields
from macro_routing.routes.route import Route
from macro_routing.routes.space import RouteSpace
from macro_routing.search.random_streams import sample_examples
from macro_routing.search.searcher import MAX_EXAMPLES
from macro_routing.search.tree_actions import ProgramTreeActions, SkipRepeatEdits
from macro_routing.search.tree_search import TreeSearch, run_searches_in_lockstep
from macro_routing.search.tree_settings import TreeSettings
from macro_routing.settings import check_integer, check_seed

PUBLISHED_EXAMPLES = 100


@dataclass(frozen=True)
class PerExampleSearch:
    """Tree searches over some examples, all in lockstep, and their cost, known beforehand."""

    space: RouteSpace
    examples: int
    """Number of examples to choose from."""
    settings: TreeSettings
    budget: int | None = None
    """Maximum evaluations; None: the published number."""
    seed: int = 0
    extended: bool = False
    """Whether MACRO's actions are searched instead of skips and repeats."""
    every_example: bool = False
    """Whether all examples are searched, as an oracle does; else as many as are published or the budget allows."""

    max_rounds: ClassVar[int] = 1
    """All searches together are one round."""
    max_candidates: ClassVar[int] = 0
    """No route is validated."""

    def __post_init__(self) -> None:
        """Reject a budget that is too small for one example."""
        check_seed(self.seed)
        check_integer("examples", self.examples, minimum=1, maximum=MAX_EXAMPLES)
        needed = 2 * self.examples if self.every_example else self.settings.simulations + 1
        if self.budget is not None and self.budget < needed:
            raise SettingsError(
                f"budget = {self.budget} is not allowed: these tree searches need at least {needed} evaluations;"
                f" give a larger budget or fewer {'test examples' if self.every_example else 'simulations'}"
            )

    @cached_property
    def searched_example_indices(self) -> tuple[int, ...]:
        """Indices of the examples that are searched."""
        if self.every_example:
            return tuple(range(self.examples))
        affordable = PUBLISHED_EXAMPLES if self.budget is None else self.budget // (self.settings.simulations + 1)
        return sample_examples(self.examples, min(self.examples, affordable), self.seed)

    @property
    def simulations(self) -> int:
        """Simulations per example."""
        if self.budget is None:
            return self.settings.simulations
        affordable = self.budget // len(self.searched_example_indices) - 1
        return affordable if self.every_example else max(self.settings.simulations, affordable)

    @property
    def max_draws_per_round(self) -> int:
        """Maximum routes per example."""
        return self.simulations + 1

    def max_evaluations(self, done: int = 0) -> int:
        """Maximum evaluations from round ``done`` on."""
        return 0 if done else len(self.searched_example_indices) * self.max_draws_per_round

    @cached_property
    def identity(self) -> str:
        """Description of the search, for comparing saved states."""
        return json.dumps({"search": "tree", **dataclasses.asdict(self)}, sort_keys=True)

    def run_searches(self, score: Callable[[list[tuple[int, Route]]], Sequence[float]]) -> list[TreeSearch[Any]]:
        """Run every searched example's search to its end; ``score`` scores (index of the example, route) pairs."""
        actions: Any = ProgramTreeActions(self.space) if self.extended else SkipRepeatEdits(self.space.layers)
        settings = dataclasses.replace(
            select_settings_fields(TreeSettings, self.settings), simulations=self.simulations
        )
        searches = [TreeSearch(actions, settings, self.seed, example=index) for index in self.searched_example_indices]
        run_searches_in_lockstep(
            searches, lambda asked: score([(self.searched_example_indices[number], route) for number, route in asked])
        )
        return searches
