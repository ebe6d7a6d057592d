"""What one edge of the per-example tree search changes: the layer edits of Dr.LLM and CoLA, or MACRO's own actions.

A node of the tree holds a *plan*: the layer list itself (a ``Route``) for layer edits, a ``Program`` for MACRO's
actions, whose children continue after its last written step. A plan can have thousands of children, so actions name
them by small numbers first and build a child only when it is drawn.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import RouteError
from macro_routing.routes.route import Program, Route, Step
from macro_routing.routes.space import RouteSpace

Plan = TypeVar("Plan")
MAX_VISITS = 2
"""A layer of a Dr.LLM label is skipped, executed or repeated once: it occurs 0, 1 or 2 times."""
_SKIP_ONE, _SKIP_TWO, _REPEAT = -1, -2, 1


class TreeActions(Protocol[Plan]):
    """How plans are changed; the children of a plan are different routes, and none is the plan's own."""

    @property
    def standard_pass_plan(self) -> Plan:
        """The standard pass."""

    def tree_plan_to_route(self, plan: Plan) -> Route:
        """What is executed."""

    def list_actions(self, plan: Plan) -> NDArray[np.int64]:
        """Every possible action as a row (where, what)."""

    def apply_action(self, plan: Plan, where: int, what: int) -> Plan:
        """The plan after one of its actions."""


@dataclass(frozen=True)
class SkipRepeatEdits(TreeActions[Route]):
    """Dr.LLM's edits of a layer list: at any index skip one or two layers, or repeat a layer.

    Layers stay in order and occur at most twice, so every list can be written as counts; this also keeps the list
    within the published bound of twice the model's layers. At least one layer is left.
    """

    layers: int

    @property
    def standard_pass_plan(self) -> Route:
        """Every layer once."""
        return Route.standard(self.layers)

    def tree_plan_to_route(self, plan: Route) -> Route:
        """The list is what is executed."""
        return plan

    def list_actions(self, plan: Route) -> NDArray[np.int64]:
        """Rows of (index in the list, change of length)."""
        steps = plan.steps
        # Skipping either of a doubled layer gives the same list, so only the first of the two can be skipped.
        firsts = [0, *(index for index, (before, step) in enumerate(pairwise(steps), 1) if step != before)]
        visits = Counter(steps)
        rows = [(index, _REPEAT) for index in firsts if visits[steps[index]] < MAX_VISITS]
        if len(steps) > 1:
            rows += [(index, _SKIP_ONE) for index in firsts]
        if len(steps) > 2:
            rows += [(index, _SKIP_TWO) for index in range(len(steps) - 1)]
        return np.array(rows, dtype=np.int64)

    def apply_action(self, plan: Route, where: int, what: int) -> Route:
        """The list with the layers from ``where`` on left out, or its layer there doubled."""
        kept = where + 1 if what == _REPEAT else where
        skipped = 0 if what == _REPEAT else -what
        return Route(plan.steps[:kept] + plan.steps[where + skipped :], plan.layers)


@dataclass(frozen=True)
class ProgramTreeActions(TreeActions[Program]):
    """MACRO's actions under its mask (``Dr.LLM+Ext.``): some standard moves, one deviating action, then rejoin.

    A deviating action is any add, or a move other than +1. Two children of a program part at the first step in which
    one of them deviates, and there the parent goes on plainly or has ended: no two of them are the same route.
    """

    space: RouteSpace

    @property
    def standard_pass_plan(self) -> Program:
        """The standard pass, written as short as possible, so that the first deviation can come anywhere."""
        return Program((Step(0),))

    def tree_plan_to_route(self, plan: Program) -> Route:
        """The program, rejoined."""
        return plan.to_route(self.space.layers)

    def list_actions(self, plan: Program) -> NDArray[np.int64]:
        """Rows of (standard moves before the deviation, action of the space)."""
        layer = plan.steps[-1].layer
        advance = np.arange(self.space.layers - layer)
        allowed = self.space.feasibility_mask[len(plan.steps) + advance, layer + advance]  # fancy indexing: a copy
        allowed[:, [self.space.forward_action, self.space.rejoin_action]] = False
        return np.argwhere(allowed)

    def apply_action(self, plan: Program, where: int, what: int) -> Program:
        """The program with ``where`` standard moves and one action more."""
        last = plan.steps[-1].layer + where
        moves = tuple(Step(layer) for layer in range(plan.steps[-1].layer + 1, last + 1))
        displacement, add = self.space.action_displacements_and_adds[what]
        return Program((*plan.steps, *moves, Step(last + displacement, add)))


def drllm_label_from_route(route: Route) -> tuple[int, ...]:
    """How often each layer of the model is visited, 0, 1 or 2; rejects routes that such counts cannot express."""
    counts = route.applications_per_layer
    if max(counts) > MAX_VISITS or route_from_drllm_label(counts) != route:
        raise RouteError(
            f"{route} cannot be written as counts: they say only how often each layer comes (at most {MAX_VISITS}"
            " times), in the model's order and without adds"
        )
    return counts


def route_from_drllm_label(counts: Sequence[int]) -> Route:
    """The layer list in which every layer comes as often as its count says."""
    for layer, count in enumerate(counts):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_VISITS:
            raise RouteError(
                f"layer {layer} is to be applied {count!r} times; a label's counts are 0, 1 and {MAX_VISITS}"
            )
    if not any(counts):
        raise RouteError("a route cannot skip every layer; at least one layer must be applied")
    return Route.from_layer_counts(counts)
