"""The per-example tree search of Dr.LLM and CoLA: finds a short route that answers one example correctly.

It learns the example's reward for every route it asks about, so its result is a label to train on (Dr.LLM) or an upper
bound (CoLA), never a score. The published release gives every node one child and so never chooses;
here nodes have several, and UCB decides between them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SearchError
from macro_routing.routes.route import Route
from macro_routing.search.random_streams import RandomStreamPurpose, make_generator
from macro_routing.search.searcher import MAX_EXAMPLES
from macro_routing.search.tree_actions import Plan, TreeActions
from macro_routing.search.tree_settings import TreeSettings
from macro_routing.settings import check_integer, check_seed

CORRECT_REWARD = 1.0
"""A reward of at least this much means that the example was answered correctly."""


@dataclass(frozen=True)
class TreeSearchSummary:
    """What a search did, and what its tree looks like."""

    simulations: int
    asked: int
    """Different routes whose reward was told, the standard pass among them."""
    memo_hits: int
    """Simulations that ended at a route whose reward was known."""
    nodes: int
    max_children: int
    """Largest number of children of a node; 1 would mean a tree that never branches."""
    depth: int
    """Largest number of edits between the standard pass and a node."""


@dataclass(eq=False, slots=True)
class _SearchTreeNode(Generic[Plan]):
    plan: Plan
    route: Route
    depth: int
    untried: NDArray[np.int64]
    """Actions without a child, in the random order in which they will be drawn (from the end)."""
    children: "list[_SearchTreeNode[Plan]]" = field(default_factory=list)
    visits: int = 0
    total: float = 0.0

    @property
    def can_expand(self) -> bool:
        return len(self.untried) > 0 and len(self.children) < progressive_widening_limit(self.visits)


class TreeSearch(Generic[Plan]):
    """One example's search; it depends only on its arguments and the rewards.

    ``example`` only names a random stream of its own, so that examples searched with one seed do not all try the
    same routes.
    """

    def __init__(self, actions: TreeActions[Plan], settings: TreeSettings, seed: int, *, example: int = 0) -> None:
        check_seed(seed)
        check_integer("example", example, minimum=0, maximum=MAX_EXAMPLES)
        self._actions = actions
        self._settings = settings
        self._rng = make_generator(seed, RandomStreamPurpose.TREE_GROWTH, example)
        self._nodes: list[_SearchTreeNode[Plan]] = []
        self.rewards: dict[Route, float] = {}
        """Every route asked and its reward, in the order of asking."""
        self.label: Route | None = None
        """The shortest correct route; of equally short ones that with fewer different layers, then the earlier."""
        self._root = self._create_node(actions.standard_pass_plan, depth=0)
        self._waiting: list[_SearchTreeNode[Plan]] = []  # the path to the node whose reward must be told next

    @property
    def statistics(self) -> TreeSearchSummary:
        """What was done so far."""
        return TreeSearchSummary(
            simulations=self._simulations_done,
            asked=len(self.rewards),
            memo_hits=self._root.visits - len(self.rewards),
            nodes=len(self._nodes),
            max_children=max(len(node.children) for node in self._nodes),
            depth=max(node.depth for node in self._nodes),
        )

    def ask(self) -> Route | None:
        """The route whose reward must be told next, the same one until it is; None when the search is over."""
        while not self._waiting and not self._is_over:
            path = self._select_path() if self.rewards else [self._root]
            known = self.rewards.get(path[-1].route)
            if known is None:
                self._waiting = path
            else:
                _backpropagate(path, known)
        return self._waiting[-1].route if self._waiting else None

    def tell(self, reward: float) -> None:
        """The reward of the route asked for: 1 if the example was answered correctly, 0 if not."""
        if not self._waiting:
            raise SearchError("the tree search got a reward that it had not asked for; call ask first")
        if not math.isfinite(reward):
            raise SearchError(f"{reward!r} is not a reward: it must be a finite number")
        path, self._waiting = self._waiting, []
        route = path[-1].route
        self.rewards[route] = float(reward)
        if reward >= CORRECT_REWARD and (
            self.label is None or _route_size_sort_key(route) < _route_size_sort_key(self.label)
        ):
            self.label = route
        _backpropagate(path, float(reward))

    @property
    def _is_over(self) -> bool:
        return self._simulations_done >= self._settings.simulations or self._may_stop_search_early

    @property
    def _simulations_done(self) -> int:
        # Every simulation passes through the root, which was also scored once by itself.
        return max(self._root.visits - 1, 0)

    @property
    def _may_stop_search_early(self) -> bool:
        if not self._settings.stop_early or self.label is None:
            return False
        standard = self._root.route
        return (
            self.rewards[standard] < CORRECT_REWARD
            or standard.length - self.label.length >= self._settings.min_layers_saved
        )

    def _select_path(self) -> list[_SearchTreeNode[Plan]]:
        """One simulation's path: down by UCB to the first node that may widen, and on to its new child.

        A node without any children to have ends the path itself: its reward counts once more.
        """
        path = [self._root]
        while not path[-1].can_expand and path[-1].children:
            path.append(self._choose_child(path[-1]))
        if path[-1].can_expand:
            path.append(self._expand_node(path[-1]))
        return path

    def _choose_child(self, node: _SearchTreeNode[Plan]) -> _SearchTreeNode[Plan]:
        if self._rng.random() < self._settings.random_child_probability:
            return node.children[self._rng.integers(len(node.children))]
        layers = node.route.layers
        return max(
            node.children,
            key=lambda child: ucb_score(
                child.total,
                child.visits,
                node.visits,
                relative_length=child.route.length / layers,
                settings=self._settings,
            ),
        )

    def _expand_node(self, node: _SearchTreeNode[Plan]) -> _SearchTreeNode[Plan]:
        where, what = node.untried[-1].tolist()
        node.untried = node.untried[:-1]
        child = self._create_node(self._actions.apply_action(node.plan, where, what), node.depth + 1)
        node.children.append(child)
        return child

    def _create_node(self, plan: Plan, depth: int) -> _SearchTreeNode[Plan]:
        untried = self._rng.permutation(self._actions.list_actions(plan))
        node = _SearchTreeNode(plan, self._actions.tree_plan_to_route(plan), depth, untried)
        self._nodes.append(node)
        return node


def ucb_score(
    total: float, visits: int, parent_visits: int, *, relative_length: float, settings: TreeSettings
) -> float:
    """How much a child deserves the next visit: ``Q/N + c·√(ln t / N) − penalty · len/L``."""
    bonus = settings.exploration * math.sqrt(math.log(parent_visits) / visits)
    return total / visits + bonus - settings.length_penalty * relative_length


def progressive_widening_limit(visits: int) -> int:
    """How many children a node may have before selection goes below it (progressive widening).

    A plan has dozens to thousands of children. Trying them all first, as textbook UCT does, would spend ten
    simulations on single edits of the standard pass; one child only, as the published release has it, leaves nothing
    to choose. A limit that grows with the root of the visits gives both some breadth and some depth.
    """
    return math.ceil(math.sqrt(visits)) + 1


def run_searches_in_lockstep(
    searches: Sequence[TreeSearch[Any]], score: Callable[[list[tuple[int, Route]]], Sequence[float]]
) -> None:
    """Run many examples' searches to their ends in lockstep, so that an engine can score their routes together.

    ``score`` gets (index of the search, route) of all that are not over and gives the rewards in the same order.
    """
    while asked := [(index, route) for index, search in enumerate(searches) if (route := search.ask()) is not None]:
        rewards = score(asked)
        if len(rewards) != len(asked):
            raise SearchError(f"{len(asked)} rewards were asked for, {len(rewards)} came back")
        for (index, _), reward in zip(asked, rewards, strict=True):
            searches[index].tell(reward)


def _backpropagate(path: Sequence[_SearchTreeNode[Plan]], reward: float) -> None:
    for node in path:
        node.visits += 1
        node.total += reward


def _route_size_sort_key(route: Route) -> tuple[int, int]:
    return route.length, len({step.layer for step in route.steps})
