"""The prefix tree of many routes: every common prefix of steps is computed once.

The plan is a list of layer applications in depth-first order, small branches first, so that a hidden state is freed as
soon as the last branch that continues it has read it. It is made from the routes alone; nothing runs here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from macro_routing.routes.route import Add, Route, Step

EMBEDDINGS = 0
"""Number of the state before the first step."""


@dataclass(frozen=True)
class LayerApplication:
    """One layer applied to one hidden state."""

    state: int
    """Number of the state that it makes."""
    source: int
    """Number of the state that it is applied to."""
    layer: int
    add: Add | None
    added_state: int | None
    """Number of the earlier state that is added first."""
    finished_routes: tuple[int, ...]
    """Indices of the routes that end here."""
    freed_states: tuple[int, ...]
    """States that nothing reads later."""


@dataclass(frozen=True)
class PrefixTreePlan:
    """All layer applications for a group of different routes."""

    routes: tuple[Route, ...]
    applications: tuple[LayerApplication, ...]

    @property
    def sharing_factor(self) -> float:
        """Steps of all routes per layer application: an upper bound on the speedup."""
        return sum(route.length for route in self.routes) / len(self.applications)

    @cached_property
    def max_live_states(self) -> int:
        """The largest number of states in memory at once."""
        live, largest = {EMBEDDINGS}, 1
        for application in self.applications:
            live.add(application.state)
            largest = max(largest, len(live))
            live -= set(application.freed_states)
        return largest


@dataclass
class _PrefixTreeNode:
    step: Step
    parent: int
    children: dict[Step, int] = field(default_factory=dict)
    finished_routes: list[int] = field(default_factory=list)


def plan_prefix_tree(routes: Sequence[Route]) -> PrefixTreePlan:
    """The plan for different routes of one model."""
    nodes = _build_tree(routes)
    order = _order_depth_first(nodes)
    added_states = {number: _find_added_state(nodes, number) for number in order}
    last_read = {
        state: number
        for number in order
        for state in (nodes[number].parent, added_states[number], number)
        if state is not None
    }
    freed_states: dict[int, list[int]] = {}
    for state, number in last_read.items():
        freed_states.setdefault(number, []).append(state)
    applications = tuple(
        LayerApplication(
            number,
            nodes[number].parent,
            nodes[number].step.layer,
            nodes[number].step.add,
            added_states[number],
            tuple(nodes[number].finished_routes),
            tuple(freed_states.get(number, ())),
        )
        for number in order
    )
    return PrefixTreePlan(tuple(routes), applications)


def plan_prefix_trees(routes: Sequence[Route], max_states: int) -> list[PrefixTreePlan]:
    """Plans for groups of routes, each with at most ``max_states`` live states, except for a single route.

    Routes are grouped in the order of their steps, so that those which share most stay together.
    """
    ordered = sorted(dict.fromkeys(routes), key=prefix_sharing_sort_key)
    plan = _plan_prefix_tree_cached(tuple(ordered))
    if plan.max_live_states <= max_states or len(ordered) == 1:
        return [plan]
    half = len(ordered) // 2
    return plan_prefix_trees(ordered[:half], max_states) + plan_prefix_trees(ordered[half:], max_states)


_plan_prefix_tree_cached = lru_cache(maxsize=16)(plan_prefix_tree)
"""The same routes run on batch after batch."""


def prefix_sharing_sort_key(route: Route) -> list[tuple[int, int, float]]:
    """Orders routes by their steps, so that routes with a common prefix are neighbours."""
    return [
        (step.layer, step.add.back if step.add else 0, step.add.coefficient if step.add else 0.0)
        for step in route.steps
    ]


def _build_tree(routes: Sequence[Route]) -> list[_PrefixTreeNode]:
    """Nodes by number, parents before children; the first one stands for the embeddings, and its step is not run."""
    nodes = [_PrefixTreeNode(Step(0), EMBEDDINGS)]
    for index, route in enumerate(routes):
        current = EMBEDDINGS
        for step in route.steps:
            children = nodes[current].children
            if step not in children:
                children[step] = len(nodes)
                nodes.append(_PrefixTreeNode(step, current))
            current = children[step]
        nodes[current].finished_routes.append(index)
    return nodes


def _order_depth_first(nodes: list[_PrefixTreeNode]) -> list[int]:
    """Node numbers in the order of execution; of each node's branches the one with most live states comes last."""
    live_states: dict[int, int] = {}
    for number in reversed(range(len(nodes))):  # children have higher numbers than their parents
        below = sorted((live_states[child] for child in nodes[number].children.values()), reverse=True)
        # While the last (largest) branch runs, the node's own state is not needed any more.
        live_states[number] = max([1, *below[:1], *(size + 1 for size in below[1:])])
    stack = [EMBEDDINGS]
    order = []
    while stack:
        number = stack.pop()
        order.append(number)
        stack += sorted(nodes[number].children.values(), key=lambda child: (-live_states[child], -child))
    return order[1:]


def _find_added_state(nodes: list[_PrefixTreeNode], number: int) -> int | None:
    """The state that a step's add reads: ``back`` applications before the one that the step continues."""
    add = nodes[number].step.add
    if add is None:
        return None
    state = nodes[number].parent
    for _ in range(add.back):
        state = nodes[state].parent
    return state
