"""What a route is made of: adds, repeats, skips, jumps; and what differs from the standard pass."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from macro_routing.routes.route import Route, Step


@dataclass(frozen=True)
class Composition:
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


def analyze_composition(route: Route) -> Composition:
    """Count what ``route`` is made of."""
    coefficients = [step.add.coefficient for step in route.steps if step.add is not None]
    deltas = layer_displacements(route)
    visited = len({step.layer for step in route.steps})
    return Composition(
        length=route.length,
        adds=sum(value > 0 for value in coefficients),
        subtractions=sum(value < 0 for value in coefficients),
        repeats=route.length - visited,
        skips=route.layers - visited,
        back_jumps=sum(delta < 0 for delta in deltas),
        forward_jumps=sum(delta > 1 for delta in deltas),
    )


def layer_displacements(route: Route) -> list[int]:
    """Layer difference of every step after the first."""
    return [after.layer - before.layer for before, after in pairwise(route.steps)]


def describe_deviations(route: Route) -> list[str]:
    """What differs from the standard pass, one plain sentence fragment each; empty for the standard pass."""
    if route.is_standard:
        return []
    lines = _describe_jumps(route)
    counts = Counter(step.layer for step in route.steps)
    repeated = [layer for layer in sorted(counts) if counts[layer] > 1]
    lines += [
        f"applies {_format_layer_range(group)} {counts[group[0]]} times"
        for group in _group_consecutive(repeated, counts)
    ]
    skipped = [layer for layer in range(route.layers) if layer not in counts]
    lines += [f"never applies {_format_layer_range(group)}" for group in _group_consecutive(skipped, counts)]
    for number, step in enumerate(route.steps, 1):
        if step.add is not None:
            verb = "adds" if step.add.coefficient > 0 else "subtracts"
            lines.append(f"{verb} an earlier state at step {number}: {step}")
    return lines


def _describe_jumps(route: Route) -> list[str]:
    lines = []
    if route.steps[0].layer != 0:
        lines.append(f"starts at L{route.steps[0].layer}")
    for number, (before, delta) in enumerate(zip(route.steps, layer_displacements(route), strict=False), 2):
        if delta != 1:
            kind = "repeats" if delta == 0 else "jumps back" if delta < 0 else "jumps ahead"
            lines.append(f"{kind} at step {number}: L{before.layer} to L{before.layer + delta}")
    if not route.reaches_last_layer:
        lines.append(f"ends early, after L{route.steps[-1].layer}")
    return lines


def _group_consecutive(layers: list[int], counts: Counter[int]) -> list[list[int]]:
    """Group neighbouring layers that were applied equally often."""
    groups: list[list[int]] = []
    for layer in layers:
        if groups and groups[-1][-1] == layer - 1 and counts[layer] == counts[layer - 1]:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return groups


def _format_layer_range(layers: list[int]) -> str:
    return f"L{layers[0]}" if len(layers) == 1 else f"L{layers[0]}-L{layers[-1]}"


def render_route_ascii(route: Route) -> str:
    """A one-line ASCII picture: ``-`` an ordinary step, ``<`` back, ``=`` repeat, ``>`` ahead, ``+`` add.

    After anything but ordinary steps the layer is named; ``~`` is a subtraction.

    For example ``0------7<3-----9`` runs layers 0 to 7, goes back to 3 and runs on to 9.
    """
    parts = [str(route.steps[0].layer)]
    previous = route.steps[0]
    for index, step in enumerate(route.steps[1:], 1):
        mark = _step_symbol(previous, step)
        ordinary = mark == "-"
        last_of_run = index + 1 == route.length or _step_symbol(step, route.steps[index + 1]) != "-"
        parts.append(mark)
        if not ordinary or last_of_run:
            parts.append(str(step.layer))
        previous = step
    return "".join(parts)


def _step_symbol(before: Step, step: Step) -> str:
    delta = step.layer - before.layer
    jump = "<" if delta < 0 else "=" if delta == 0 else ">" if delta > 1 else ""
    add = "" if step.add is None else "+" if step.add.coefficient > 0 else "~"
    return jump + add or "-"
