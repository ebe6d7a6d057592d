"""Work items: routes to run on one work unit, and how they are divided among workers.

A work item is idempotent. Who runs it, how often it was tried before and which other routes it holds changes no
outcome, since the examples of a unit are run together by every worker. In a paired item each route has an example of
its own and the pairs form the batch, so there outcomes agree up to rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.evaluation.work_units import WorkUnit
from macro_routing.routes.route import Route

Results = tuple[tuple[ExampleOutcome, ...], ...]
"""Outcomes by route, in the order of the work item; in a paired item each route has one."""


@dataclass(frozen=True)
class WorkItem:
    """Routes to run on the examples of a unit."""

    routes: tuple[Route, ...]
    unit: WorkUnit
    paired: bool = False
    """Whether each route runs only on the example at its own index, instead of on all examples."""
    prefetch: bool = False
    """Whether the result is not needed yet; only idle workers take such items."""

    def split_by_route(self) -> "list[WorkItem]":
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
    return [part for item in items for part in _split_item(item, per_item)]


def _split_item(item: WorkItem, parts: int) -> list[WorkItem]:
    if item.paired:
        size = -(-len(item.routes) // parts)
        return [
            WorkItem(item.routes[start : start + size], item.unit[start : start + size], paired=True)
            for start in range(0, len(item.routes), size)
        ]
    return [WorkItem(tuple(group), item.unit) for group in group_by_shared_prefix(item.routes, parts)]


def group_by_shared_prefix(routes: Sequence[Route], groups: int) -> list[list[Route]]:
    """Routes in at most ``groups`` groups of about equal work; routes with a common prefix stay together.

    Routes are sorted by their steps, so the work that a route adds to the prefix tree is its length less the prefix
    that it shares with the route before it.
    """
    ordered = sorted(routes, key=_sort_key)
    added = [
        route.length - (_shared_prefix_length(ordered[index - 1], route) if index else 0)
        for index, route in enumerate(ordered)
    ]
    share = sum(added) / min(groups, len(ordered))
    grouped: list[list[Route]] = [[]]
    done = 0.0
    for route, work in zip(ordered, added, strict=True):
        if grouped[-1] and done + work / 2 > share * len(grouped):
            grouped.append([])
        grouped[-1].append(route)
        done += work
    return grouped


def _sort_key(route: Route) -> list[tuple[int, int, float]]:
    return [
        (step.layer, step.add.back if step.add else 0, step.add.coefficient if step.add else 0.0)
        for step in route.steps
    ]


def _shared_prefix_length(first: Route, second: Route) -> int:
    for index, (step, other) in enumerate(zip(first.steps, second.steps, strict=False)):
        if step != other:
            return index
    return min(first.length, second.length)
