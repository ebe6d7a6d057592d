"""The order in which many routes run their layers, so that one layer call serves many of them.

A layer call applies one layer to the rows of every route that needs this layer next. The fewest calls are a shortest
common supersequence of the routes, which is hard to find for many of them. A beam search comes close for a few routes;
for many, sweeping through the layers from first to last, again and again, is good enough.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Route

NONE = -1
_BEAM_WIDTH = 40
_MAX_BEAM_SEARCH_ROUTES = 48
"""With more routes nearly every layer is needed all the time, and a beam search takes longer than it saves."""
_LayerOrders = Sequence[Sequence[int]]


@dataclass(frozen=True)
class RouteStep:
    """One step of one route."""

    route: int
    """Index among the routes."""
    step: int
    add_slot: int = NONE
    """Slot of the kept state that this step adds; ``NONE`` without an add."""
    coefficient: float = 0.0
    keep_slot: int = NONE
    """Slot in which the state after this step is kept for a later add."""


@dataclass(frozen=True)
class LayerCall:
    """A layer, and the steps that it serves, in the order of their routes."""

    layer: int
    steps: tuple[RouteStep, ...]

    @cached_property
    def step_and_slot_indices(self) -> NDArray[np.int64]:
        """``[4, steps]``: route, step, slot to add from, slot to keep in."""
        return np.array(
            [
                (route_step.route, route_step.step, route_step.add_slot, route_step.keep_slot)
                for route_step in self.steps
            ]
        ).T

    @cached_property
    def add_coefficients(self) -> NDArray[np.float32]:
        """``[steps]``: of the states to add; infinite where a number is too large for float32."""
        with np.errstate(over="ignore"):
            return np.array([route_step.coefficient for route_step in self.steps], dtype=np.float32)


@dataclass(frozen=True)
class LayerSchedule:
    """All layer calls of one forward pass, for all routes."""

    calls: tuple[LayerCall, ...]
    kept_states: int
    """The largest number of states that a route keeps for its adds."""


class _NextLayerTracker:
    """How far each order has come, and which orders need which layer next."""

    def __init__(self, orders: _LayerOrders) -> None:
        self._orders = orders
        self.done = [0] * len(orders)
        self.waiting: dict[int, list[int]] = {}
        for index, order in enumerate(orders):
            self.waiting.setdefault(order[0], []).append(index)

    def advance_cursors_past_layer(self, layer: int) -> list[int]:
        """Advance all orders that need ``layer`` next; their indices, in ascending order."""
        indices = sorted(self.waiting.pop(layer))
        for index in indices:
            self.done[index] += 1
            if self.done[index] < len(self._orders[index]):
                self.waiting.setdefault(self._orders[index][self.done[index]], []).append(index)
        return indices


def merge_layer_orders(orders: _LayerOrders) -> list[int]:
    """A short list of layers that contains every order as a subsequence."""
    fast = merge_layer_orders_fast(orders)
    return fast if len(orders) > _MAX_BEAM_SEARCH_ROUTES else min(_merge_orders_by_beam_search(orders), fast, key=len)


def merge_layer_orders_fast(orders: _LayerOrders) -> list[int]:
    """Such a list without a search: the shortest of three.

    An order that jumps back can be served at once or in the next sweep, and so can one that repeats a layer. With few
    orders the first is shorter. With many, every layer of the next sweep is needed by some order anyway.
    """
    return min((_merge_layer_orders_by_sweeps(orders, min_move) for min_move in (-math.inf, 0, 1)), key=len)


def schedule_layer_calls(
    routes: Sequence[Route], merge_orders: Callable[[_LayerOrders], list[int]] = merge_layer_orders
) -> LayerSchedule:
    """Layer calls that take every route through all its steps, in order."""
    steps = [_schedule_single_route_steps(index, route) for index, route in enumerate(routes)]
    orders = [[step.layer for step in route.steps] for route in routes]
    progress = _NextLayerTracker(orders)
    calls = []
    for layer in merge_orders(orders):
        indices = progress.advance_cursors_past_layer(layer)
        calls.append(LayerCall(layer, tuple(steps[index][progress.done[index] - 1] for index in indices)))
    kept = max((route_step.keep_slot + 1 for route_steps in steps for route_step in route_steps), default=0)
    return LayerSchedule(tuple(calls), kept)


def _schedule_single_route_steps(index: int, route: Route) -> list[RouteStep]:
    """The steps of one route, with the slots in which states are kept for its adds."""
    # h_{t-b} before step number t + 1 is the state after step number t - b; numbers here count from 0.
    sources = {number: number - step.add.back - 1 for number, step in enumerate(route.steps) if step.add}
    slots = {state: slot for slot, state in enumerate(sorted(set(sources.values())))}
    return [
        RouteStep(
            index,
            number,
            slots[sources[number]] if step.add else NONE,
            step.add.coefficient if step.add else 0.0,
            slots.get(number, NONE),
        )
        for number, step in enumerate(route.steps)
    ]


def _merge_layer_orders_by_sweeps(orders: _LayerOrders, min_move: float) -> list[int]:
    """Run the lowest needed layer that is at least ``min_move`` above the last one, or else the lowest of all."""
    progress = _NextLayerTracker(orders)
    merged: list[int] = []
    while progress.waiting:
        lowest = merged[-1] + min_move if merged else 0
        merged.append(min([layer for layer in progress.waiting if layer >= lowest] or progress.waiting))
        progress.advance_cursors_past_layer(merged[-1])
    return merged


def _merge_orders_by_beam_search(orders: _LayerOrders) -> list[int]:
    """The list by a beam search."""
    # How far each order has come → the list of layers that led there.
    beam: dict[tuple[int, ...], list[int]] = {(0,) * len(orders): []}
    while True:
        extended: dict[tuple[int, ...], list[int]] = {}
        for done, merged in beam.items():
            needed = {order[at] for order, at in zip(orders, done, strict=True) if at < len(order)}
            if not needed:
                return merged
            for layer in sorted(needed):
                after = tuple(
                    at + (at < len(order) and order[at] == layer) for order, at in zip(orders, done, strict=True)
                )
                extended.setdefault(after, [*merged, layer])
        best = sorted(extended, key=lambda done: _sum_squared_remaining_route_steps(orders, done))[:_BEAM_WIDTH]
        beam = {done: extended[done] for done in best}


def _sum_squared_remaining_route_steps(orders: _LayerOrders, done: Sequence[int]) -> int:
    # Squared, so that no order is left far behind and finishes alone.
    return sum((len(order) - at) ** 2 for order, at in zip(orders, done, strict=True))
