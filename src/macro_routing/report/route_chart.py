"""A route as a track over the layers: from left to right the steps, from bottom to top the layers."""

from __future__ import annotations

from itertools import pairwise

from macro_routing.report.figure import Figure, Key
from macro_routing.report.markup import Markup, element, joined
from macro_routing.report.scale import Scale, ticks
from macro_routing.routes.composition import describe_deviations
from macro_routing.routes.route import Route, Step

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 84.0, 14.0, 40.0
_NARROWEST, _STEP_WIDTH = 860.0, 13.0
_LONGEST = 600
"""Steps; a longer track shows nothing that its description does not."""
_STANDARD_KEY = ("standard-pass", "standard pass")
_NAMES = {"ahead": "jump ahead", "back": "jump back", "repeat": "repeat"}


def route_track(route: Route) -> Markup:
    """The route's picture with its legend and, in words, what differs from the standard pass."""
    differences = describe_deviations(route)
    listed = element("ul", *[element("li", one) for one in differences], class_="differences")
    words = listed if differences else element("p", "This is the standard pass: every layer once, in order.")
    figure = track_figure(route)
    if figure is None:
        return joined(element("p", f"The route has {route.length} steps, too many to draw."), words)
    return joined(figure.html(), words)


def track_figure(route: Route, title: str = "The route") -> Figure | None:
    """The route's picture; None where it is too long for one."""
    if route.length > _LONGEST:
        return None
    drawing = _Drawing(route)
    label = f"Track of the route {route}: {route.length} steps over {route.layers} layers"
    return Figure("route", title, label, drawing.width, drawing.height, drawing.shapes(), _legend(route))


class _Drawing:
    """Places of steps and layers."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.steps = max(route.length, route.layers)
        self.width = max(_NARROWEST, _LEFT + _RIGHT + _STEP_WIDTH * self.steps)
        self.height = _TOP + _BOTTOM + min(max(11.0 * route.layers, 150.0), 460.0)
        self.x = Scale(1, max(self.steps, 2), _LEFT + 10, self.width - _RIGHT)
        self.y = Scale(0, max(route.layers - 1, 1), self.height - _BOTTOM - 8, _TOP + 8)

    def at(self, place: int) -> tuple[float, float]:
        """Where the step at ``place``, counted from 0, is drawn."""
        return self.x(place + 1), self.y(self.route.steps[place].layer)

    def shapes(self) -> Markup:
        return joined(
            *self._background(),
            *self._steps(),
            *[self._add(place, step) for place, step in enumerate(self.route.steps) if step.add is not None],
            *self._labels(),
        )

    def _background(self) -> list[Markup]:
        """Layers that are never applied, axes, and the standard pass."""
        left, right, bottom = _LEFT, self.width - _RIGHT + 10, self.height - _BOTTOM
        thick = abs(self.y(1) - self.y(0))
        applied = {step.layer for step in self.route.steps}
        never = [layer for layer in range(self.route.layers) if layer not in applied]
        parts = [
            element("rect", x=left, y=self.y(layer) - thick / 2, width=right - left, height=thick, class_="never")
            for layer in never
        ]
        for layer in ticks(0, self.route.layers - 1, 8):
            height = self.y(layer)
            parts.append(element("line", x1=left, x2=right, y1=height, y2=height, class_="grid"))
            parts.append(element("text", f"L{layer}", x=left - 8, y=height + 4, text_anchor="end"))
        parts += [
            element("text", str(step), x=self.x(step), y=bottom + 16, text_anchor="middle")
            for step in ticks(1, self.steps, 10)
        ]
        middle = (left + right) / 2
        parts.append(element("text", "step", x=middle, y=self.height - 6, text_anchor="middle"))
        last = self.route.layers
        diagonal = {"x1": self.x(1), "y1": self.y(0), "x2": self.x(last), "y2": self.y(last - 1)}
        return [*parts, element("line", class_="standard-pass", **diagonal)]

    def _steps(self) -> list[Markup]:
        """Ordinary steps as one path, jumps and repeats each on its own, and a dot per step."""
        ordinary, jumps, dots = "", [], []
        for place, (before, step) in enumerate(pairwise(self.route.steps), 1):
            (x1, y1), (x2, y2) = self.at(place - 1), self.at(place)
            if (kind := _kind(before, step)) is None:
                ordinary += f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
            else:
                title = element("title", f"step {place + 1}: {_NAMES[kind]}, L{before.layer} to L{step.layer}")
                jumps.append(element("path", title, d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", class_=kind))
        kinds = [None, *[_kind(before, step) for before, step in pairwise(self.route.steps)]]
        for place, kind in enumerate(kinds):
            x, y = self.at(place)
            dots.append(element("circle", cx=x, cy=y, r=4.2 if kind else 2.2, class_=f"stop {kind or ''}".strip()))
        return [element("path", d=ordinary, class_="ordinary") if ordinary else Markup(), *jumps, *dots]

    def _add(self, place: int, step: Step) -> Markup:
        """An arc from the state that is added to the step that adds it."""
        assert step.add is not None
        # The step's input is the state after the step before it; an add counts back from there.
        source = place - 1 - step.add.back
        (x1, y1), (x2, y2) = self.at(source), self.at(place)
        sign = "minus" if step.add.coefficient < 0 else ""
        told = element("title", f"step {place + 1}, {step}: the state after step {source + 1} is added to its input")
        arc = f"M{x1:.1f} {y1:.1f}Q{x1:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        path = element("path", told, d=arc, class_=f"add {sign}".strip())
        # The arc arrives level from the left, so its tip needs no turning.
        tip = element("path", d=f"M{x2 - 12:.1f} {y2 - 4:.1f}l8 4l-8 4z", class_="add-tip")
        return joined(path, tip, element("circle", cx=x1, cy=y1, r=4.6, class_="add-from"))

    def _labels(self) -> list[Markup]:
        """Names of the steps that are not ordinary, to the lower right, where there is room; one under the other."""
        notable = [
            (place, step)
            for place, (before, step) in enumerate(pairwise(self.route.steps), 1)
            if step.add is not None or _kind(before, step) is not None
        ]
        labels: list[Markup] = []
        taken: list[tuple[float, float]] = []
        for place, step in notable:
            x, y = self.at(place)[0] + 7, self.at(place)[1] + 13
            end = x + 7.5 * len(str(step))
            while any(x < other_end and abs(y - other_y) < 13 for other_end, other_y in taken):
                y += 13
            taken.append((end, y))
            labels.append(element("text", str(step), x=x, y=y, class_="label"))
        return labels


def _kind(before: Step, step: Step) -> str | None:
    """What a step is if it does not lead to the next layer."""
    delta = step.layer - before.layer
    return None if delta == 1 else "repeat" if delta == 0 else "back" if delta < 0 else "ahead"


def _legend(route: Route) -> tuple[Key, ...]:
    """Only what the picture shows."""
    kinds = {_kind(before, step) for before, step in pairwise(route.steps)}
    shown = [("ordinary", "next layer"), *[(kind, name) for kind, name in _NAMES.items() if kind in kinds]]
    if route.has_adds:
        shown.append(("add", "an earlier state (ring) is added"))
    if any(step.add is not None and step.add.coefficient < 0 for step in route.steps):
        shown.append(("add minus", "subtracted"))
    keys = [(element("path", d="M1 6L27 6", class_=kind), name) for kind, name in [*shown, _STANDARD_KEY]]
    if len({step.layer for step in route.steps}) < route.layers:
        keys.append((element("rect", x=1, y=1, width=26, height=10, class_="never"), "layers never applied"))
    return tuple(keys)
