"""Which layer applications many routes need together: every common prefix of steps once.

The plan is a list of applications in depth-first order, small branches first, so that a state which several branches
continue is given up as soon as the last of them has read it. SearchPlan from the routes alone; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from macro_routing.routes.route import Add, Route, Step

EMBEDDINGS = 0
"""Number of the state before the first step."""


@dataclass(frozen=True)
class Application:
    """One layer applied to one state."""

    state: int
    """Number of the state it makes."""
    source: int
    """The state it is applied to."""
    layer: int
    add: Add | None
    added: int | None
    """The earlier state that is added first."""
    ends: tuple[int, ...]
    """Places of the routes that end here."""
    last_reads: tuple[int, ...]
    """States that nothing later reads, this one included where no branch goes on."""
    closes: tuple[int, ...]
    """States of which this is the last descendant, itself included."""


@dataclass(frozen=True)
class TreePlan:
    """All applications for a group of different routes."""

    routes: tuple[Route, ...]
    applications: tuple[Application, ...]

    @property
    def shared(self) -> float:
        """Steps of all routes for every application made: what sharing can save at most."""
        return sum(route.length for route in self.routes) / len(self.applications)

    @cached_property
    def most_states(self) -> int:
        """The most states that are held at once."""
        held, most = {EMBEDDINGS}, 1
        for application in self.applications:
            held.add(application.state)
            most = max(most, len(held))
            held -= set(application.last_reads)
        return most


@dataclass
class _Node:
    step: Step
    parent: int
    depth: int
    children: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def plan_tree(routes: Sequence[Route]) -> TreePlan:
    """The plan for different routes of one model."""
    nodes = _tree(routes)
    order = _depth_first(nodes)
    added = {number: _ancestor(nodes, number) for number in order}
    last_read: dict[int, int] = {}
    last_descendant: dict[int, int] = {}
    for moment, number in enumerate(order):
        for state in (nodes[number].parent, added[number], number):
            if state is not None:
                last_read[state] = moment
        above = number
        while above != EMBEDDINGS:
            last_descendant[above] = moment
            above = nodes[above].parent
    read_last, closed = _by_moment(last_read), _by_moment(last_descendant)
    applications = tuple(
        Application(
            number,
            nodes[number].parent,
            nodes[number].step.layer,
            nodes[number].step.add,
            added[number],
            tuple(nodes[number].ends),
            tuple(read_last.get(moment, ())),
            tuple(closed.get(moment, ())),
        )
        for moment, number in enumerate(order)
    )
    return TreePlan(tuple(routes), applications)


def plan_within(routes: Sequence[Route], most_states: int) -> list[TreePlan]:
    """Plans for groups of routes, each holding at most ``most_states`` at once (one route alone takes what it takes).

    Routes are grouped in the order of their steps, so that those which share most stay together.
    """
    ordered = sorted(dict.fromkeys(routes), key=lambda route: [_step_order(step) for step in route.steps])
    plan = _known_plan(tuple(ordered))
    if plan.most_states <= most_states or len(ordered) == 1:
        return [plan]
    half = len(ordered) // 2
    return plan_within(ordered[:half], most_states) + plan_within(ordered[half:], most_states)


@lru_cache(maxsize=16)
def _known_plan(routes: tuple[Route, ...]) -> TreePlan:
    """The plan of routes that meet batch after batch."""
    return plan_tree(routes)


def _step_order(step: Step) -> tuple[int, int, float]:
    return (step.layer, 0, 0.0) if step.add is None else (step.layer, step.add.back, step.add.coefficient)


def _tree(routes: Sequence[Route]) -> dict[int, _Node]:
    """Nodes by number, parents before children; the embeddings are no node."""
    nodes: dict[int, _Node] = {}
    known: dict[tuple[int, Step], int] = {}
    for place, route in enumerate(routes):
        here = EMBEDDINGS
        for depth, step in enumerate(route.steps):
            if (here, step) not in known:
                known[here, step] = len(nodes) + 1
                nodes[len(nodes) + 1] = _Node(step, here, depth)
                if here != EMBEDDINGS:
                    nodes[here].children.append(len(nodes))
            here = known[here, step]
        nodes[here].ends.append(place)
    return nodes


def _depth_first(nodes: dict[int, _Node]) -> list[int]:
    """Node numbers in the order of execution: of every node's branches the one that holds most states comes last."""
    holds: dict[int, int] = {}
    for number in reversed(nodes):  # children have higher numbers than their parents
        below = sorted((holds[child] for child in nodes[number].children), reverse=True)
        # While the last (largest) branch runs, the node's own state is not needed any more.
        holds[number] = max([1, *below[:1], *(size + 1 for size in below[1:])])
    waiting = sorted((n for n, node in nodes.items() if node.parent == EMBEDDINGS), key=lambda n: (-holds[n], -n))
    order = []
    while waiting:
        number = waiting.pop()
        order.append(number)
        waiting += sorted(nodes[number].children, key=lambda child: (-holds[child], -child))
    return order


def _ancestor(nodes: dict[int, _Node], number: int) -> int | None:
    """The state an add reads: ``back`` applications before the one this step continues."""
    add = nodes[number].step.add
    if add is None:
        return None
    here = nodes[number].parent
    for _ in range(add.back):
        here = nodes[here].parent
    return here


def _by_moment(last: dict[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for state, moment in last.items():
        found.setdefault(moment, []).append(state)
    return found
