"""A route over the layers: steps from left to right, layers from bottom to top."""

from itertools import pairwise

from markupsafe import Markup

from macro_routing.report.chart_parts import horizontal_gridline, line_key, svg_text
from macro_routing.report.figure import Figure, LegendKey
from macro_routing.report.markup import join_markup, svg_element
from macro_routing.report.rendering import render_template
from macro_routing.report.scale import Scale, integer_ticks
from macro_routing.routes.composition import describe_deviations
from macro_routing.routes.route import Route, Step

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 84.0, 14.0, 40.0
_MIN_WIDTH, _STEP_WIDTH = 860.0, 13.0
_MAX_STEPS = 600
"""A longer chart shows nothing that its description does not."""
_MOVE_NAMES = {"ahead": "jump ahead", "back": "jump back", "repeat": "repeat"}


def render_route_chart(route: Route) -> Markup:
    """The chart with its legend and, in words, what differs from the standard pass."""
    deviations = describe_deviations(route)
    return render_template("route_chart.html", route=route, figure=route_figure(route), deviations=deviations)


def route_figure(route: Route, title: str = "The route") -> Figure | None:
    """The chart; None if the route is too long for one."""
    if route.length > _MAX_STEPS:
        return None
    chart = _RouteChart(route)
    label = f"Track of the route {route}: {route.length} steps over {route.layers} layers"
    return Figure("route", title, label, chart.width, chart.height, chart.draw_shapes(), _make_legend(route))


class _RouteChart:
    def __init__(self, route: Route) -> None:
        self.route = route
        self.steps = max(route.length, route.layers)
        self.width = max(_MIN_WIDTH, _LEFT + _RIGHT + _STEP_WIDTH * self.steps)
        self.height = _TOP + _BOTTOM + min(max(11.0 * route.layers, 150.0), 460.0)
        self.x = Scale(1, max(self.steps, 2), _LEFT + 10, self.width - _RIGHT)
        self.y = Scale(0, max(route.layers - 1, 1), self.height - _BOTTOM - 8, _TOP + 8)
        self.moves = [None, *(_classify_move(before, step) for before, step in pairwise(route.steps))]

    def _step_position(self, index: int) -> tuple[float, float]:
        return self.x(index + 1), self.y(self.route.steps[index].layer)

    def draw_shapes(self) -> Markup:
        adds = [(index, step) for index, step in enumerate(self.route.steps) if step.add is not None]
        return join_markup(
            *self._draw_background(),
            *self._draw_moves(),
            *(self._draw_step(index) for index in range(self.route.length)),
            *(self._draw_add(index, step) for index, step in adds),
            *self._draw_labels(),
        )

    def _draw_background(self) -> list[Markup]:
        """Layers that are never applied, axes, and the standard pass."""
        left, right, bottom = _LEFT, self.width - _RIGHT + 10, self.height - _BOTTOM
        height = abs(self.y(1) - self.y(0))
        unused = set(range(self.route.layers)) - {step.layer for step in self.route.steps}
        band = {"x": left, "width": right - left, "height": height}
        last = self.route.layers
        diagonal = {"x1": self.x(1), "y1": self.y(0), "x2": self.x(last), "y2": self.y(last - 1)}
        return [
            *(svg_element("rect", y=self.y(layer) - height / 2, class_="never", **band) for layer in sorted(unused)),
            *(horizontal_gridline(f"L{layer}", self.y(layer), left, right) for layer in integer_ticks(0, last - 1, 8)),
            *(svg_text(str(step), self.x(step), bottom + 16) for step in integer_ticks(1, self.steps, 10)),
            svg_text("step", (left + right) / 2, self.height - 6),
            svg_element("line", class_="standard-pass", **diagonal),
        ]

    def _draw_moves(self) -> list[Markup]:
        """Steps to the next layer as one path, jumps and repeats each on its own."""
        ordinary, jumps = "", []
        for index, (before, step) in enumerate(pairwise(self.route.steps), 1):
            (x1, y1), (x2, y2), move = self._step_position(index - 1), self._step_position(index), self.moves[index]
            segment = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
            if move is None:
                ordinary += segment
            else:
                title = svg_element("title", f"step {index + 1}: {_MOVE_NAMES[move]}, L{before.layer} to L{step.layer}")
                jumps.append(svg_element("path", title, d=segment, class_=move))
        return [*([svg_element("path", d=ordinary, class_="ordinary")] if ordinary else []), *jumps]

    def _draw_step(self, index: int) -> Markup:
        (x, y), move = self._step_position(index), self.moves[index]
        return svg_element("circle", cx=x, cy=y, r=4.2 if move else 2.2, class_=f"stop {move or ''}".strip())

    def _draw_add(self, index: int, step: Step) -> Markup:
        """An arc from the state that is added to the step that adds it."""
        assert step.add is not None
        # The step's input is the state after the step before it; an add counts back from there.
        source = index - 1 - step.add.back
        (x1, y1), (x2, y2) = self._step_position(source), self._step_position(index)
        meaning = f"step {index + 1}, {step}: the state after step {source + 1} is added to its input"
        arc = f"M{x1:.1f} {y1:.1f}Q{x1:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        class_ = "add minus" if step.add.coefficient < 0 else "add"
        return join_markup(
            svg_element("path", svg_element("title", meaning), d=arc, class_=class_),
            # The arc arrives level from the left, so its tip needs no rotation.
            svg_element("path", d=f"M{x2 - 12:.1f} {y2 - 4:.1f}l8 4l-8 4z", class_="add-tip"),
            svg_element("circle", cx=x1, cy=y1, r=4.6, class_="add-from"),
        )

    def _draw_labels(self) -> list[Markup]:
        """Names of the steps that are not ordinary, to the lower right; overlapping ones one under the other."""
        labels: list[Markup] = []
        taken: list[tuple[float, float]] = []
        for index, step in enumerate(self.route.steps):
            if index == 0 or (step.add is None and self.moves[index] is None):
                continue
            x, y = self._step_position(index)[0] + 7, self._step_position(index)[1] + 13
            end = x + 7.5 * len(str(step))
            while any(x < other_end and abs(y - other_y) < 13 for other_end, other_y in taken):
                y += 13
            taken.append((end, y))
            labels.append(svg_element("text", str(step), x=x, y=y, class_="label"))
        return labels


def _classify_move(before: Step, step: Step) -> str | None:
    """What a step is if it does not lead to the next layer."""
    delta = step.layer - before.layer
    return None if delta == 1 else "repeat" if delta == 0 else "back" if delta < 0 else "ahead"


def _make_legend(route: Route) -> tuple[LegendKey, ...]:
    """Only what the chart shows."""
    moves = {_classify_move(before, step) for before, step in pairwise(route.steps)}
    lines = [("ordinary", "next layer"), *((move, name) for move, name in _MOVE_NAMES.items() if move in moves)]
    if route.has_adds:
        lines.append(("add", "an earlier state (ring) is added"))
    if any(step.add is not None and step.add.coefficient < 0 for step in route.steps):
        lines.append(("add minus", "subtracted"))
    keys = [(line_key(class_), name) for class_, name in [*lines, ("standard-pass", "standard pass")]]
    if len({step.layer for step in route.steps}) < route.layers:
        unused = svg_element("rect", x=1, y=1, width=26, height=10, class_="never")
        keys.append((unused, "layers never applied"))
    return tuple(keys)
