"""A route's deviations from the standard pass, each of which can be dropped."""

import itertools
from dataclasses import dataclass

from macro_routing.errors import RouteError
from macro_routing.routes.mixture import Member, Mixture, RouteOrMixture, to_simplest_form
from macro_routing.routes.route import Route, Step
from macro_routing.routes.route_diff import RouteEdit, diff_routes


@dataclass(frozen=True)
class Deviation:
    """One thing that a route does differently, and the route without it."""

    description: str
    """In words, such as ``repeats L3-L7``."""
    without: RouteOrMixture | None
    """None where what is left cannot be executed."""
    alone: RouteOrMixture | None
    """The standard pass with this deviation only."""
    reason: str = ""
    """Why it cannot be dropped or stand alone."""
    remark: str = ""
    """What else changes when it is dropped."""


def list_route_deviations(route: RouteOrMixture) -> list[Deviation]:
    """All deviations in the order of the route, or the members of a mixture; none for the standard pass."""
    if isinstance(route, Mixture):
        return [_make_member_deviation(route, member) for member in route.members if not member.is_standard]
    standard = Route.standard(route.layers)
    return [_make_route_deviation(route, standard, edit) for edit in diff_routes(standard, route)]


def _make_member_deviation(mixture: Mixture, member: Member) -> Deviation:
    """A member; alone it is added to the standard pass only."""
    others = tuple(other for other in mixture.members if other != member)
    pair = tuple(other for other in mixture.members if other.is_standard or other == member)
    without, alone = _make_mixture_or_none(others), _make_mixture_or_none(pair)
    reason = "" if without and alone else "a sum of negative weights alone chooses what is least probable"
    return Deviation(str(member), without, alone, reason)


def _make_mixture_or_none(members: tuple[Member, ...]) -> RouteOrMixture | None:
    """These members; None without a positive weight."""
    return to_simplest_form(Mixture(members)) if any(member.weight > 0 for member in members) else None


def _make_route_deviation(route: Route, standard: Route, edit: RouteEdit) -> Deviation:
    start = edit.new_start - 1
    kept = (*route.steps[:start], *edit.old, *route.steps[start + len(edit.new) :])
    first = edit.old_start - 1
    alone = (*standard.steps[:first], *edit.new, *standard.steps[first + len(edit.old) :])
    reasons: list[str] = []
    without = _make_route_or_none(kept, route.layers, reasons)
    by_itself = _make_route_or_none(alone, route.layers, reasons)
    remark = "" if without is None else _describe_adds_with_shifted_source(route, start, edit)
    return Deviation(describe_edit(edit), without, by_itself, "; ".join(reasons), remark)


def _describe_adds_with_shifted_source(route: Route, start: int, edit: RouteEdit) -> str:
    """Adds behind the block count back over it: where its length changes they come to another state."""
    end = start + len(edit.new)
    if len(edit.old) == len(edit.new):
        return ""
    # Step i reads state i; an add looks back from there, and state ``end`` is the first that the block leaves behind.
    later = enumerate(route.steps[end:], end)
    moved = [str(step) for index, step in later if step.add is not None and index - step.add.back < end]
    return f"without it another state is added at {', '.join(moved)}" if moved else ""


def _make_route_or_none(steps: tuple[Step, ...], layers: int, reasons: list[str]) -> Route | None:
    try:
        return Route(steps, layers)
    except RouteError as error:  # an add that looks back further than what is left, or nothing is left
        reasons.append(str(error))
        return None


def describe_edit(edit: RouteEdit) -> str:
    """What the edit does, with the layers in the paper's notation."""
    if edit.kind == "removed":
        return f"skips {_format_steps(edit.old)} (after step {edit.new_start - 1})"
    if edit.kind == "added":
        return f"inserts {_format_steps(edit.new)} (step {edit.new_start})"
    return f"{_format_steps(edit.new)} instead of {_format_steps(edit.old)} (step {edit.new_start})"


def _format_steps(steps: tuple[Step, ...]) -> str:
    has_no_adds = all(step.add is None for step in steps)
    is_ascending = all(b.layer == a.layer + 1 for a, b in itertools.pairwise(steps))
    if len(steps) >= 3 and has_no_adds and is_ascending:
        return f"{steps[0]}-{steps[-1]}"
    return " ".join(map(str, steps))
