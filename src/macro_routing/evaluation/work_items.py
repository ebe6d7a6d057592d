"""Work units, work items and executors: how routes × examples are divided and handed to other processes.

A work unit is a fixed group of examples that are run together, and stored or run again as a whole. Which examples share
a batch can change a score in its last digits. So units are planned from the list of examples and a size alone, never
from the contents of a store or the free memory.

A work item is routes to run on one unit. It is idempotent: who runs it, how often it was tried before and which other
routes it holds changes no outcome. In a paired item each route has an example of its own and the pairs form the batch,
so there outcomes agree up to rounding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Protocol

import numpy as np

from macro_routing.engine.prefix_tree import prefix_sharing_sort_key
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.scoring_settings import UnitSizes
from macro_routing.routes.mixture import RouteOrMixture, to_mixture
from macro_routing.search.searcher import ScoringFailure
from macro_routing.tasks.task import Example

WorkUnit = tuple[Example, ...]
_EARLY_SHARE = 0.3
"""Share of a race's examples on which hardly any route can be stopped, unless the elite is very good."""
_ORDER_SEED = 20_240_501
"""Seed of the order in which a race visits its units; any fixed number works."""


def split_examples_into_work_units(examples: Sequence[Example], size: int) -> list[WorkUnit]:
    """Units in the order of the examples, so that a longer list starts with the units of a shorter one."""
    return [tuple(examples[start : start + size]) for start in range(0, len(examples), size)]


def group_examples_into_race_units(examples: Sequence[Example], sizes: UnitSizes) -> list[WorkUnit]:
    """Units of examples of similar length (little padding), in shuffled order (the first are not easier)."""
    by_length = sorted(examples, key=lambda example: len(example.question) + sum(map(len, example.choices)))
    return [tuple(by_length[rank] for rank in unit) for unit in shuffle_indices_into_units(len(examples), sizes)]


def shuffle_indices_into_units(count: int, sizes: UnitSizes) -> list[list[int]]:
    """Indices 0 … count - 1 as units: neighbours together, units shuffled, all but the first ones split finely."""
    units = np.array_split(np.arange(count), -(-count // sizes.race))
    shuffled = [units[number] for number in np.random.default_rng(_ORDER_SEED).permutation(len(units))]
    early = int(_EARLY_SHARE * len(shuffled))
    late = [part for unit in shuffled[early:] for part in np.array_split(unit, -(-len(unit) // sizes.race_late))]
    return [unit.tolist() for unit in (*shuffled[:early], *late)]


# --- items ----------------------------------------------------------------------------------------------------------

Results = tuple[tuple[ExampleOutcome, ...], ...]
"""Outcomes by route, in the order of the work item; in a paired item each route has one."""


@dataclass(frozen=True)
class WorkItem:
    """Routes to run on the examples of a unit."""

    routes: tuple[RouteOrMixture, ...]
    unit: WorkUnit
    paired: bool = False
    """Whether each route runs only on the example at its own index, instead of on all examples."""
    prefetch: bool = False
    """Whether the result is not needed yet; only idle workers take such items."""

    def split_into_smaller_items(self, parts: int) -> "list[WorkItem]":
        """The same work in about ``parts`` items; pairs have nothing to share, so each becomes an item."""
        if self.paired:
            return self.split_into_single_route_items()
        return [replace(self, routes=tuple(group)) for group in group_by_shared_prefix(self.routes, parts)]

    def split_into_single_route_items(self) -> "list[WorkItem]":
        """The same work, one route per item."""
        if self.paired:
            pairs = zip(self.routes, self.unit, strict=True)
            return [replace(self, routes=(route,), unit=(example,)) for route, example in pairs]
        return [replace(self, routes=(route,)) for route in self.routes]


def split_work(parts: int, items: Sequence[WorkItem]) -> list[WorkItem]:
    """The same work in at least ``parts`` items, if there are enough routes; routes of an item share prefixes."""
    if not items or len(items) >= parts:
        return list(items)
    per_item = -(-parts // len(items))
    return [part for item in items for part in item.split_into_smaller_items(per_item)]


def group_by_shared_prefix(routes: Sequence[RouteOrMixture], groups: int) -> list[list[RouteOrMixture]]:
    """Routes in at most ``groups`` groups of about equal work; routes with a common prefix stay together.

    Routes are sorted by their steps, so the work that a route adds to the prefix tree is its length less the prefix
    that it shares with the route before it.
    """
    ordered = sorted(routes, key=lambda route: prefix_sharing_sort_key(to_mixture(route).routes[0]))
    added = [
        route.length - (_shared_prefix_length(ordered[index - 1], route) if index else 0)
        for index, route in enumerate(ordered)
    ]
    share = sum(added) / min(groups, len(ordered))
    grouped: list[list[RouteOrMixture]] = [[]]
    done = 0.0
    for route, work in zip(ordered, added, strict=True):
        if grouped[-1] and done + work / 2 > share * len(grouped):
            grouped.append([])
        grouped[-1].append(route)
        done += work
    return grouped


def _shared_prefix_length(first: RouteOrMixture, second: RouteOrMixture) -> int:
    steps = zip(to_mixture(first).routes[0].steps, to_mixture(second).routes[0].steps, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], steps))


# --- executors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluatorSpec:
    """What a worker builds its evaluator from; a worker whose own scope differs rejects the item."""

    task: str
    """The name of the task."""
    decoding: DecodingSettings
    """How answers are obtained."""
    decoder: str
    """`auto`, `eager` or `fused`."""
    sizes: UnitSizes
    """How examples are divided into units."""
    scope: str
    """Digest of the evaluator's scope."""


class WorkItemExecutor(Protocol):
    """Workers that run work items."""

    @property
    def worker_count(self) -> int:
        """Number of items that are run at the same time."""
        ...

    def run_work_items(
        self, spec: EvaluatorSpec, items: Sequence[WorkItem]
    ) -> Iterator[tuple[WorkItem, Results | ScoringFailure]]:
        """Results in the order in which they arrive; together they cover every item once.

        An item may come back in parts. A part that no worker survives has one route and comes back as a failure.
        A prefetch item that failed once comes back as a failure, which says nothing about its routes.
        """
        ...
