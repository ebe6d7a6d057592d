"""The order in which routes in flight visit layers, so that one reading of a layer's weights serves many of them.

A *tick* applies one layer to the rows of every route that needs this layer next. The fewest ticks are a shortest
common supersequence of the routes, which nobody finds quickly for many of them; a beam search comes near enough for
some, and going through the layers from the first to the last, again and again, for many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """``[4, visits]``: route, step, where the state to add was kept, where the state is kept."""
        return np.array([(one.route, one.step, one.add_from, one.keep_at) for one in self.visits]).T

    @cached_property
    def coefficients(self) -> NDArray[np.float32]:
        """``[visits]``: of the states to add; infinite where a number is too large for the device."""
        with np.errstate(over="ignore"):
            return np.array([one.coefficient for one in self.visits], dtype=np.float32)


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
    quick = quick_order(orders)
    return quick if len(orders) > _MOST_FOLLOWED else min(_followed(orders), quick, key=len)


def quick_order(orders: Sequence[Sequence[int]]) -> list[int]:
    """Such a list, found at once: the shortest of three.

    Who jumps back can be taken along at once or be left to the next sweep, and so can who repeats a layer. With few
    orders the first is shorter; with many there is somebody for every layer of the next sweep, whoever waits for it.
    """
    return min((_taken(orders, rule) for rule in (_lowest, _onward, _upward)), key=len)


def _lowest(waiting: Mapping[int, object], _at: int) -> int:
    return min(waiting)


def _onward(waiting: Mapping[int, object], at: int) -> int:
    return min([layer for layer in waiting if layer >= at] or waiting)


def _upward(waiting: Mapping[int, object], at: int) -> int:
    return min([layer for layer in waiting if layer > at] or waiting)


def _taken(orders: Sequence[Sequence[int]], choose: Callable[[Mapping[int, object], int], int]) -> list[int]:
    """The list that comes of a rule that chooses from what is waited for, knowing the layer before."""
    done = [0] * len(orders)
    waiting: dict[int, list[int]] = {}
    for place, order in enumerate(orders):
        waiting.setdefault(order[0], []).append(place)
    found: list[int] = []
    while waiting:
        found.append(choose(waiting, found[-1] if found else NOTHING))
        for place in waiting.pop(found[-1]):
            done[place] += 1
            if done[place] < len(orders[place]):
                waiting.setdefault(orders[place][done[place]], []).append(place)
    return found


def _followed(orders: Sequence[Sequence[int]]) -> list[int]:
    """Such a list by a beam search."""
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
