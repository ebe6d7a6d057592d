"""The order in which routes in flight visit layers, so that one reading of a layer's weights serves many of them.

A *tick* applies one layer to the rows of every route that needs this layer next. The fewest ticks are a shortest
common supersequence of the routes, which nobody finds quickly for many of them; a beam search comes near enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from macro_routing.routes.route import Route

NOTHING = -1
_BEAM = 40
"""Ways of beginning that are followed at once."""


_MOST_FOLLOWED = 48
"""With more orders nearly every layer is waited for all the time, and following ways takes longer than it saves."""
_Trail = tuple[int, "_Trail"] | None


@dataclass(frozen=True)
class Visit:
    """One step of one route."""

    route: int
    """Place among the routes in flight."""
    step: int
    add_from: int = NOTHING
    """Where the earlier state was kept that this step adds; ``NOTHING`` when it adds none."""
    coefficient: float = 0.0
    keep_at: int = NOTHING
    """Where the state after this step is kept for a later add."""


@dataclass(frozen=True)
class Tick:
    """A layer, and whose turn it is."""

    layer: int
    visits: tuple[Visit, ...]


@dataclass(frozen=True)
class Schedule:
    """One token's way through all layers, for all routes."""

    ticks: tuple[Tick, ...]
    kept: int
    """Most states a route keeps for its adds."""

    @cached_property
    def sharing(self) -> float:
        """Routes served by a tick, on average."""
        return sum(len(tick.visits) for tick in self.ticks) / len(self.ticks)


def plan_ticks(routes: Sequence[Route]) -> Schedule:
    """Ticks that take every route through all its steps, in order."""
    ways = [visits_of(place, route) for place, route in enumerate(routes)]
    done = [0] * len(routes)
    ticks = []
    for layer in shared_order([[step.layer for step in route.steps] for route in routes]):
        turn = [
            place
            for place, route in enumerate(routes)
            if done[place] < route.length and route.steps[done[place]].layer == layer
        ]
        ticks.append(Tick(layer, tuple(ways[place][done[place]] for place in turn)))
        for place in turn:
            done[place] += 1
    kept = max((visit.keep_at + 1 for way in ways for visit in way), default=0)
    return Schedule(tuple(ticks), kept)


def shared_order(orders: Sequence[Sequence[int]]) -> list[int]:
    """A short list of layers from which every order can be made by leaving layers out."""
    if len(orders) > _MOST_FOLLOWED:
        return _lowest_first(orders)
    # How far each order has come → the list that led there, as (last layer, the list before it).
    beam: dict[tuple[int, ...], _Trail] = {(0,) * len(orders): None}
    while True:
        further: dict[tuple[int, ...], _Trail] = {}
        for done, trail in beam.items():
            waiting = {order[at] for order, at in zip(orders, done, strict=True) if at < len(order)}
            if not waiting:
                return _listed(trail)
            for layer in sorted(waiting):
                after = tuple(
                    at + (at < len(order) and order[at] == layer) for order, at in zip(orders, done, strict=True)
                )
                further.setdefault(after, (layer, trail))
        beam = {done: further[done] for done in sorted(further, key=lambda done: _left(orders, done))[:_BEAM]}


def _lowest_first(orders: Sequence[Sequence[int]]) -> list[int]:
    """Always the lowest layer that anyone waits for: longer than need be, but found at once for many orders."""
    found, done = [], [0] * len(orders)
    while waiting := {order[at] for order, at in zip(orders, done, strict=True) if at < len(order)}:
        layer = min(waiting)
        found.append(layer)
        done = [at + (at < len(order) and order[at] == layer) for order, at in zip(orders, done, strict=True)]
    return found


def _left(orders: Sequence[Sequence[int]], done: Sequence[int]) -> int:
    # Squared, so that no order is left far behind to go the rest of its way alone.
    return sum((len(order) - at) ** 2 for order, at in zip(orders, done, strict=True))


def _listed(trail: _Trail) -> list[int]:
    found = []
    while trail is not None:
        layer, trail = trail
        found.append(layer)
    return found[::-1]


def visits_of(place: int, route: Route) -> list[Visit]:
    """The steps of one route, with where states are kept and found for its adds."""
    # h_{t-b} before step number t + 1 is the state after step number t - b; numbers here count from 0.
    source = {number: number - step.add.back - 1 for number, step in enumerate(route.steps) if step.add}
    shelf = {state: position for position, state in enumerate(sorted(set(source.values())))}
    return [
        Visit(
            place,
            number,
            shelf[source[number]] if step.add else NOTHING,
            step.add.coefficient if step.add else 0.0,
            shelf.get(number, NOTHING),
        )
        for number, step in enumerate(route.steps)
    ]
