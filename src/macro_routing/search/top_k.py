"""Exact top-k decoding: the most probable complete programs, in order (paper, "Exactness of top-k decoding").

Positions (layer, displacement, operator context, applications) form an acyclic graph in which nothing with a
different future is merged. One vectorised backward pass finds the best completion of every position; programs
are then enumerated lazily, best first: a position's j-th best completion is only computed when a better
program has used its (j-1)-th. So the cost is one pass over positions × actions plus a little per program,
however many programs there are, and however many of them tie.

Programs within 1e-9 of each other in log-probability are tied; ties go to the shorter executed route, then
to the earlier action. All completions of a position share their past, so the rule can be applied position by
position; the tests hold the result against plain enumeration.

With ``max_length`` only programs whose routes apply at most that many layers are ranked: positions know how many were
applied, so the limit only decides where rejoining is allowed.
"""

import bisect
import functools
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import Position, RouteSpace
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.searcher import Candidate
from macro_routing.settings import check_integer

TIE_TOLERANCE = 1e-9
_UNREACHED = np.iinfo(np.int64).max


def iterate_programs(policy: MarkovPolicy, max_length: int | None = None) -> Iterator[Program]:
    """All programs with positive probability, most probable first; with ``max_length`` those of routes no longer."""
    completions = _RankedPrograms(policy, policy.space.max_length if max_length is None else max_length)
    if not completions.has_programs:
        return
    for number in itertools.count():
        actions = completions.program_actions(number)
        if actions is None:
            return
        yield policy.space.program_from_actions(actions)


def decode_top_programs(policy: MarkovPolicy, k: int) -> tuple[Candidate, ...]:
    """The paper's literal final set: the ``k`` most probable programs, then duplicates by route dropped."""
    check_integer("k", k, minimum=1)
    return tuple(_deduplicate_routes(policy, itertools.islice(iterate_programs(policy), k)))


def decode_top_routes(policy: MarkovPolicy, k: int, max_length: int | None = None) -> tuple[Candidate, ...]:
    """The ``k`` most probable different routes, no longer than ``max_length``, or all if there are fewer."""
    check_integer("k", k, minimum=1)
    if max_length is not None:
        check_integer("max_length", max_length, minimum=1)
    return tuple(itertools.islice(_deduplicate_routes(policy, iterate_programs(policy, max_length)), k))


def decode_anchored_routes(policy: MarkovPolicy, k: int) -> tuple[Candidate, ...]:
    """The standard pass as a floor, and the ``k - 1`` most probable routes that differ from it."""
    check_integer("k", k, minimum=1)
    standard = Candidate(Route.standard(policy.space.layers))
    others: list[Candidate] = []
    for candidate in _deduplicate_routes(policy, iterate_programs(policy)) if k > 1 else ():
        if candidate.route.is_standard:
            standard = candidate
        else:
            others.append(candidate)
        if len(others) == k - 1:
            break
    return (standard, *others)


def _deduplicate_routes(policy: MarkovPolicy, programs: Iterator[Program]) -> Iterator[Candidate]:
    seen: set[Route] = set()
    for raw_rank, program in enumerate(programs, 1):
        route = program.expand(policy.space.layers)
        if route not in seen:
            seen.add(route)
            yield Candidate(route, program, policy.log_probability(program), raw_rank, len(seen))


@dataclass(frozen=True)
class BestCompletions:
    """The best completion of every position, ``[applied, layer, displacement, operator]``."""

    cost: NDArray[np.float64]
    """Negative log-probability; infinite where nothing can follow."""
    length: NDArray[np.int64]
    """Applications still to come in the shortest of the tied best, rejoined layers included."""
    max_length: int
    """Maximum length of a route."""

    def best_after_actions(self, space: RouteSpace, applied: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Cost and length of the best that follows each action, ``[layer, action]``, without the action's cost."""
        layers = np.arange(space.layers)
        target = np.clip(layers[:, None] + space.action_deltas, 0, space.layers - 1)
        arrival = (applied + 1, target, space.action_arrivals[:, 0], space.action_arrivals[:, 1])
        feasible = space.feasibility_mask[applied]
        cost = np.where(feasible, self.cost[arrival], np.inf)
        length = self.length[arrival] + 1
        length[:, space.rejoin_action] = space.layers - 1 - layers
        cost[:, space.rejoin_action] = np.where(
            applied + length[:, space.rejoin_action] <= self.max_length, 0.0, np.inf
        )
        return cost, length


def best_completions(policy: MarkovPolicy, max_length: int | None = None) -> BestCompletions:
    """One backward pass over all positions and actions."""
    space = policy.space
    max_length = space.max_length if max_length is None else max_length
    layers, _, displacements, operators, _ = space.table_shape
    shape = (space.max_length + 2, layers, displacements, operators)
    best = BestCompletions(np.full(shape, np.inf), np.zeros(shape, dtype=np.int64), max_length)
    for applied in range(space.max_length, 0, -1):
        cost, length = best.best_after_actions(space, applied)
        total = cost[:, None, None, :] - policy.masked_log_rows(applied)  # [layer, displacement, operator, action]
        least = total.min(axis=-1)
        best.cost[applied] = least
        tied = total <= least[..., None] + TIE_TOLERANCE
        best.length[applied] = np.where(tied, length[:, None, None, :], _UNREACHED).min(axis=-1)
    return best


class _Completion(NamedTuple):
    """One completion of a position; compared by tied cost, executed length, first action, all different by then."""

    cost: float
    """Negative log-probability, snapped to the value it ties with at this position."""
    length: int
    action: int
    successor_rank: int
    """Which completion of the next position follows the action."""
    exact_cost: float


@dataclass(frozen=True, slots=True)
class _Ranking:
    """The completions of one position: those in order so far (never none), and those that may come next."""

    ordered: list[_Completion]
    waiting: list[_Completion]
    action_costs: list[float]
    tied_costs: list[float]
    """The costs met here, sorted, one for all that tie."""

    def add_completion(self, action: int, index: int, following_cost: float, following_length: int) -> None:
        """Put a completion among the waiting."""
        exact = self.action_costs[action] + following_cost
        entry = _Completion(_snap_to_tie(exact, self.tied_costs), following_length, action, index, exact)
        heapq.heappush(self.waiting, entry)

    def rank_best_waiting(self) -> None:
        """Put the best of the waiting in order, if there is one."""
        if self.waiting:
            self.ordered.append(heapq.heappop(self.waiting))


def _snap_to_tie(cost: float, known: list[float]) -> float:
    """The known cost that ``cost`` ties with; a cost that ties with none becomes known itself."""
    index = bisect.bisect_left(known, cost - TIE_TOLERANCE)
    if index < len(known) and known[index] <= cost + TIE_TOLERANCE:
        return known[index]
    known.insert(index, cost)
    return cost


class _RankedPrograms:
    """Lazily ranked completions of the positions of a policy's graph."""

    def __init__(self, policy: MarkovPolicy, max_length: int) -> None:
        self._policy = policy
        self._space = policy.space
        self._best = best_completions(policy, max_length)
        self._following = functools.cache(functools.partial(self._best.best_after_actions, policy.space))
        self._rankings: dict[Position, _Ranking] = {}

    @property
    def has_programs(self) -> bool:
        """Whether there is a program at all; under a low limit there may be none."""
        return bool(self._position_ranking(self._space.start_position).ordered)

    def program_actions(self, number: int) -> list[int] | None:
        """The actions of program ``number`` (from 0), or None when there are fewer; to be asked in order."""
        position, index = self._space.start_position, number
        if index == len(self._position_ranking(position).ordered):
            self._rank_next_completion(position)
        if index == len(self._position_ranking(position).ordered):
            return None
        actions: list[int] = []
        while True:
            entry = self._position_ranking(position).ordered[index]
            actions.append(entry.action)
            if entry.action == self._space.rejoin_action:
                return actions
            position, index = self._space.next_position(position, entry.action), entry.successor_rank

    def _rank_next_completion(self, position: Position) -> None:
        """Order one more completion of a position.

        That may need one more at the next position of the last completion, and so on along one path, which is
        walked down and up again in loops, since routes may be longer than Python's stack is deep.
        """
        path = [position]
        while (following := self._next_position(path[-1])) is not None:
            used = self._position_ranking(path[-1]).ordered[-1].successor_rank
            if len(self._position_ranking(following).ordered) > used + 1:
                break
            path.append(following)
        for visited in reversed(path):
            self._add_successor(visited)
            self._position_ranking(visited).rank_best_waiting()

    def _next_position(self, position: Position) -> Position | None:
        """Where the last ordered completion of a position goes first; None when it reaches_last_layer at once."""
        action = self._position_ranking(position).ordered[-1].action
        return None if action == self._space.rejoin_action else self._space.next_position(position, action)

    def _add_successor(self, position: Position) -> None:
        """The last ordered completion is used: its action may also be followed by the next best there."""
        following = self._next_position(position)
        if following is None:
            return
        ranking = self._position_ranking(position)
        last = ranking.ordered[-1]
        completions = self._position_ranking(following).ordered
        if len(completions) > last.successor_rank + 1:
            successor = completions[last.successor_rank + 1]
            ranking.add_completion(last.action, last.successor_rank + 1, successor.exact_cost, successor.length + 1)

    def _position_ranking(self, position: Position) -> _Ranking:
        """A position's ranking, begun with the best completion after each possible action."""
        if position not in self._rankings:
            costs = -self._policy.masked_log_row(position)
            following_costs, following_lengths = (
                values[position.layer] for values in self._following(position.applied)
            )
            totals = costs + following_costs
            ranking = _Ranking([], [], costs.tolist(), [])
            for action in np.argsort(totals, kind="stable")[: np.isfinite(totals).sum()].tolist():
                ranking.add_completion(action, 0, float(following_costs[action]), int(following_lengths[action]))
            ranking.rank_best_waiting()
            self._rankings[position] = ranking
        return self._rankings[position]
