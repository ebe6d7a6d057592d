"""What a route is made of: adds, repeats, skips, jumps; and what differs from the standard pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from macro_routing.routes.route import Route, Step


@dataclass(frozen=True)
class RouteMoveCounts:
    """Counted facts of an executed route. Subtractions are adds with a negative coefficient, counted apart."""

    length: int
    adds: int
    subtractions: int
    repeats: int
    """Applications beyond the first of each layer."""
    skips: int
    """Layers never applied."""
    back_jumps: int
    """Steps to a lower layer than the one before."""
    forward_jumps: int
    """Steps that pass over at least one layer."""


def count_route_moves(route: Route) -> RouteMoveCounts:
    """Count what ``route`` is made of."""
    coefficients = [step.add.coefficient for step in route.steps if step.add is not None]
    deltas = step_displacements(route)
    visited = len({step.layer for step in route.steps})
    return RouteMoveCounts(
        length=route.length,
        adds=sum(value > 0 for value in coefficients),
        subtractions=sum(value < 0 for value in coefficients),
        repeats=route.length - visited,
        skips=route.layers - visited,
        back_jumps=sum(delta < 0 for delta in deltas),
        forward_jumps=sum(delta > 1 for delta in deltas),
    )


def step_displacements(route: Route) -> list[int]:
    """Layer difference of every step after the first."""
    return [after.layer - before.layer for before, after in pairwise(route.steps)]


def describe_deviations_from_standard_pass(route: Route) -> list[str]:
    """What differs from the standard pass, one plain sentence fragment each; empty for the standard pass."""
    if route.is_standard:
        return []
    lines = _describe_jumps(route)
    counts = route.applications_per_layer
    repeated = [layer for layer, count in enumerate(counts) if count > 1]
    lines += [
        f"applies {_format_layer_range(group)} {counts[group[0]]} times"
        for group in _group_layers_of_equal_count(repeated, counts)
    ]
    skipped = [layer for layer, count in enumerate(counts) if count == 0]
    lines += [f"never applies {_format_layer_range(group)}" for group in _group_layers_of_equal_count(skipped, counts)]
    return lines + [
        f"{'adds' if step.add.coefficient > 0 else 'subtracts'} an earlier state at step {number}: {step}"
        for number, step in enumerate(route.steps, 1)
        if step.add is not None
    ]


def _describe_jumps(route: Route) -> list[str]:
    start, end = route.steps[0].layer, route.steps[-1].layer
    verbs = {-1: "jumps back", 0: "repeats"}
    jumps = [
        f"{verbs.get(max(delta, -1), 'jumps ahead')} at step {number}: L{before.layer} to L{before.layer + delta}"
        for number, (before, delta) in enumerate(zip(route.steps, step_displacements(route), strict=False), 2)
        if delta != 1
    ]
    early_end = [] if route.reaches_last_layer else [f"ends early, after L{end}"]
    return [*([f"starts at L{start}"] if start else []), *jumps, *early_end]


def _group_layers_of_equal_count(layers: list[int], counts: Sequence[int]) -> list[list[int]]:
    """Group neighbouring layers that were applied equally often."""
    # Consecutive layers keep the same distance to their index.
    grouped = groupby(enumerate(layers), key=lambda item: (item[1] - item[0], counts[item[1]]))
    return [[layer for _, layer in group] for _, group in grouped]


def _format_layer_range(layers: list[int]) -> str:
    return f"L{layers[0]}" if len(layers) == 1 else f"L{layers[0]}-L{layers[-1]}"


def render_route_ascii(route: Route) -> str:
    """A one-line ASCII picture: ``-`` an ordinary step, ``<`` back, ``=`` repeat, ``>`` ahead, ``+`` add.

    After anything but ordinary steps the layer is named; ``~`` is a subtraction.

    For example ``0------7<3-----9`` runs layers 0 to 7, goes back to 3 and runs on to 9.
    """
    symbols = [_step_symbol(before, step) for before, step in pairwise(route.steps)]
    drawn = str(route.steps[0].layer)
    for step, symbol, next_symbol in zip(route.steps[1:], symbols, [*symbols, ""][1:], strict=True):
        inside_run = symbol == next_symbol == "-"
        drawn += symbol if inside_run else f"{symbol}{step.layer}"
    return drawn


def _step_symbol(before: Step, step: Step) -> str:
    delta = step.layer - before.layer
    jump = "<" if delta < 0 else "=" if delta == 0 else ">" if delta > 1 else ""
    add = "" if step.add is None else "+" if step.add.coefficient > 0 else "~"
    return jump + add or "-"
