"""A route over the layers: steps from left to right, layers from bottom to top."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup

from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale, list_integer_ticks
from macro_routing.routes.mixture import Mixture, RouteOrMixture
from macro_routing.routes.route import Route, Step
from macro_routing.routes.route_moves import describe_deviations_from_standard_pass

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 84.0, 14.0, 40.0
_MIN_WIDTH, _STEP_WIDTH = 860.0, 13.0
_MAX_STEPS = 600
"""A longer chart shows nothing that its description does not."""
_MOVE_NAMES = {"ahead": "jump ahead", "back": "jump back", "repeat": "repeat"}


def render_route(route: RouteOrMixture) -> Markup:
    """The route, its chart with the legend and, in words, what differs from the standard pass.

    Of a mixture, all of this for each member.
    """
    if isinstance(route, Mixture):
        members = [(member, render_route(member.route)) for member in route.members]
        return render_template("mixture.html", mixture=route, members=members)
    deviations = describe_deviations_from_standard_pass(route)
    return render_template("route.html", route=route, figure=draw_route_chart(route), deviations=deviations)


def draw_route_charts(route: RouteOrMixture) -> list[Figure]:
    """The chart of a route, or of each member of a mixture; none of a route that is too long for one."""
    if isinstance(route, Mixture):
        charts = [draw_route_chart(member.route, str(member)) for member in route.members]
        return [replace(chart, name=f"{chart.name}_{number}") for number, chart in enumerate(charts, 1) if chart]
    chart = draw_route_chart(route, str(route))
    return [] if chart is None else [chart]


def draw_route_chart(route: Route, title: str = "The route", width: float | None = None) -> Figure | None:
    """The chart, as wide as its steps need unless ``width`` is given; None if the route is too long for one."""
    if route.length > _MAX_STEPS:
        return None
    steps = max(route.length, route.layers)
    width = width or max(_MIN_WIDTH, _LEFT + _RIGHT + _STEP_WIDTH * steps)
    height = _TOP + _BOTTOM + min(max(11.0 * route.layers, 150.0), 460.0)
    x = Scale(1, max(steps, 2), _LEFT + 10, width - _RIGHT)
    y = Scale(0, max(route.layers - 1, 1), height - _BOTTOM - 8, _TOP + 8)
    moves = [None, *(_classify_move(before, step) for before, step in pairwise(route.steps))]
    marks = [
        _RouteChartPoint(x(number), y(step.layer), move, step)
        for number, (move, step) in enumerate(zip(moves, route.steps, strict=True), 1)
    ]
    unused = sorted(set(range(route.layers)) - {step.layer for step in route.steps})
    shapes = render_template(
        "route_chart.svg",
        x=x,
        y=y,
        route=route,
        marks=marks,
        labels=_place_labels(marks),
        unused=unused,
        layer_ticks=list_integer_ticks(0, route.layers - 1, 8),
        step_ticks=list_integer_ticks(1, steps, 10),
        move_names=_MOVE_NAMES,
        height=height,
        bottom=height - _BOTTOM,
    )
    label = f"Track of the route {route}: {route.length} steps over {route.layers} layers"
    return Figure("route", title, label, width, height, shapes, _make_legend(route, {*moves}, has_unused=bool(unused)))


class _RouteChartPoint(NamedTuple):
    x: float
    y: float
    move: str | None
    """What the step is if it does not lead to the next layer."""
    step: Step


def _place_labels(marks: Sequence[_RouteChartPoint]) -> list[tuple[str, float, float]]:
    """Names of the steps that are not ordinary, to the lower right; overlapping ones one under the other."""
    labels: list[tuple[str, float, float]] = []
    for mark in marks[1:]:
        if mark.step.add is None and mark.move is None:
            continue
        x, y = mark.x + 7, mark.y + 13
        while any(x < left + 7.5 * len(text) and abs(y - top) < 13 for text, left, top in labels):
            y += 13
        labels.append((str(mark.step), x, y))
    return labels


def _classify_move(before: Step, step: Step) -> str | None:
    """What a step is if it does not lead to the next layer."""
    delta = step.layer - before.layer
    return None if delta == 1 else "repeat" if delta == 0 else "back" if delta < 0 else "ahead"


def _make_legend(route: Route, moves: set[str | None], *, has_unused: bool) -> list[LegendKey]:
    """Only what the chart shows."""
    lines = {"ordinary": "next layer", **{move: name for move, name in _MOVE_NAMES.items() if move in moves}}
    if route.has_adds:
        lines["add"] = "an earlier state (ring) is added"
    if any(step.add is not None and step.add.coefficient < 0 for step in route.steps):
        lines["add minus"] = "subtracted"
    lines["standard-pass"] = "standard pass"
    unused = [LegendKey("bar", "never", "layers never applied")] if has_unused else []
    return [*(LegendKey("line", class_, name) for class_, name in lines.items()), *unused]
