"""Where outcomes are worked out: the protocol of workers, and how work is cut for them.

An ask is a group of routes on one work unit. Asks are idempotent: who answers one, how often it was tried before, and
which other routes are in it changes no outcome, since the examples of a unit are run together whoever runs them. Of
pairs, where each route has an example of its own, the others in the ask are the batch: there it holds up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.evaluation.units import Unit
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Failure

if TYPE_CHECKING:
    from macro_routing.evaluation.evaluator import Evaluator

Results = tuple[tuple[ExampleOutcome, ...], ...]
"""Outcomes by route, in the order of the ask; of a paired ask each route has one."""


@dataclass(frozen=True)
class WorkItem:
    """Routes on the examples of a unit."""

    routes: tuple[Route, ...]
    unit: Unit
    paired: bool = False
    """Whether each route meets the example in its place alone, instead of all meeting all."""
    ahead: bool = False
    """Whether nobody waits for it yet: a worker that would be idle takes it."""

    def one_by_one(self) -> list[WorkItem]:
        """The same work, a route at a time."""
        if self.paired:
            return [
                replace(self, routes=(route,), unit=(one,)) for route, one in zip(self.routes, self.unit, strict=True)
            ]
        return [replace(self, routes=(route,)) for route in self.routes]


class Executor(Protocol):
    """Workers that answer asks."""

    @property
    def workers(self) -> int:
        """How many asks are worked on at once."""
        ...

    def run(self, evaluator: Evaluator, asks: Sequence[WorkItem]) -> Iterator[tuple[WorkItem, Results | Failure]]:
        """Results as they come, in any order; together they cover every ask once.

        An ask may come back in parts; a part that no worker survives comes back as the reason, and has one route.
        What was asked ahead comes back as a reason when it failed once, and that says nothing of its routes.
        """
        ...


def split_work(wanted: int, asks: Sequence[WorkItem]) -> list[WorkItem]:
    """The same work in as many parts as wanted, where there are routes enough; a part's routes share prefixes."""
    if not asks or len(asks) >= wanted:
        return list(asks)
    parts = -(-wanted // len(asks))
    return [part for ask in asks for part in _cut(ask, parts)]


def _cut(ask: WorkItem, parts: int) -> list[WorkItem]:
    if ask.paired:
        size = -(-len(ask.routes) // parts)
        return [
            WorkItem(ask.routes[start : start + size], ask.unit[start : start + size], paired=True)
            for start in range(0, len(ask.routes), size)
        ]
    return [WorkItem(tuple(part), ask.unit) for part in group_by_shared_prefix(ask.routes, parts)]


def group_by_shared_prefix(routes: Sequence[Route], parts: int) -> list[list[Route]]:
    """Routes in at most so many groups of about equal work; those that begin alike stay together.

    In the order of their steps, what a route adds to the prefix tree is what it does not share with the one before.
    """
    ordered = sorted(routes, key=_order)
    added = [route.length - (_shared(ordered[place - 1], route) if place else 0) for place, route in enumerate(ordered)]
    share = sum(added) / min(parts, len(ordered))
    groups: list[list[Route]] = [[]]
    done = 0.0
    for route, work in zip(ordered, added, strict=True):
        if groups[-1] and done + work / 2 > share * len(groups):
            groups.append([])
        groups[-1].append(route)
        done += work
    return groups


def _order(route: Route) -> list[tuple[int, int, float]]:
    return [
        (step.layer, step.add.back if step.add else 0, step.add.coefficient if step.add else 0.0)
        for step in route.steps
    ]


def _shared(first: Route, second: Route) -> int:
    """Steps that both begin with."""
    for place, (one, other) in enumerate(zip(first.steps, second.steps, strict=False)):
        if one != other:
            return place
    return min(first.length, second.length)
