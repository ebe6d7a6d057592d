"""Exact top-k decoding: the most probable complete programs, in order (paper, "Exactness of top-k decoding").

Positions (layer, displacement, operator context, applications) form an acyclic graph in which nothing with a
different future is merged. One vectorised backward pass finds the best suffix of every position; programs
are then enumerated lazily, best first: a position's j-th best suffix is only computed when a better
program has used its (j-1)-th. So the cost is one pass over positions × actions plus a little per program,
however many programs there are, and however many of them tie.

Programs within 1e-9 of each other in log-probability are tied; ties go to the shorter executed route, then
to the earlier action. All suffixes of a position share their past, so the rule can be applied position by
position; the tests hold the result against plain enumeration.

With ``max_length`` only programs whose routes apply at most that many layers are ranked: positions know how many were
applied, so the limit only decides where rejoining is allowed.
"""

import bisect
import functools
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import PartialProgramPosition
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.searcher import Candidate
from macro_routing.settings import check_integer

TIE_TOLERANCE = 1e-9
_UNREACHED = np.iinfo(np.int64).max


def iterate_programs(policy: MarkovPolicy, max_length: int | None = None) -> Iterator[Program]:
    """All programs with positive probability, most probable first; with ``max_length`` those of routes no longer."""
    return iter(_LazyProgramRanking(policy, policy.space.max_length if max_length is None else max_length))


def decode_top_programs(policy: MarkovPolicy, k: int) -> tuple[Candidate, ...]:
    """The paper's literal final set: the ``k`` most probable programs, then duplicates by route dropped."""
    check_integer("k", k, minimum=1)
    return tuple(_make_distinct_candidates(policy, itertools.islice(iterate_programs(policy), k)))


def decode_top_routes(policy: MarkovPolicy, k: int, max_length: int | None = None) -> tuple[Candidate, ...]:
    """The ``k`` most probable different routes, no longer than ``max_length``, or all if there are fewer."""
    check_integer("k", k, minimum=1)
    if max_length is not None:
        check_integer("max_length", max_length, minimum=1)
    return tuple(itertools.islice(_make_distinct_candidates(policy, iterate_programs(policy, max_length)), k))


def decode_standard_and_top_routes(policy: MarkovPolicy, k: int) -> tuple[Candidate, ...]:
    """The standard pass as a floor, and the ``k - 1`` most probable routes that differ from it."""
    check_integer("k", k, minimum=1)
    ranked = list(itertools.islice(_make_distinct_candidates(policy, iterate_programs(policy)), k))
    others = [candidate for candidate in ranked if not candidate.route.is_standard][: k - 1]
    # A standard pass that is less probable than all others is given without its probability.
    floor = Candidate(Route.standard(policy.space.layers))
    standard = next((candidate for candidate in ranked[: k - 1] if candidate.route.is_standard), floor)
    return (standard, *others)


def decode_routes_by_total_probability(policy: MarkovPolicy, k: int) -> tuple[Candidate, ...]:
    """The ``k`` routes with the largest total probability of all their programs, or all if there are fewer."""
    check_integer("k", k, minimum=1)
    return tuple(itertools.islice(_RoutesByTotalProbability(policy), k))


def _make_distinct_candidates(policy: MarkovPolicy, programs: Iterator[Program]) -> Iterator[Candidate]:
    seen: set[Route] = set()
    for raw_rank, program in enumerate(programs, 1):
        route = program.to_route(policy.space.layers)
        if route not in seen:
            seen.add(route)
            yield Candidate(route, program, policy.log_probability(program), raw_rank, len(seen))


class _ProgramSuffix(NamedTuple):
    """One suffix of a position; compared by tied cost, executed length, first action, all different by then."""

    cost: float
    """Negative log-probability, snapped to the value it ties with at this position."""
    length: int
    action: int
    successor_rank: int
    """Which suffix of the next position follows the action."""
    exact_cost: float


@dataclass(frozen=True, slots=True, eq=False)
class _RankedProgramSuffixes:
    """The suffixes of one position: those in order so far (never none), and those that may come next."""

    position: PartialProgramPosition
    action_costs: list[float]
    ordered: list[_ProgramSuffix] = field(default_factory=list)
    waiting: list[_ProgramSuffix] = field(default_factory=list)
    tied_costs: list[float] = field(default_factory=list)
    """The costs met here, sorted, one for all that tie."""

    def begin(self, actions: list[int], costs: list[float], lengths: list[int]) -> None:
        """Rank the best suffixes after actions with ascending costs; the first of them is put in order."""
        tied = self.tied_costs
        for action, cost, length in zip(actions, costs, lengths, strict=True):
            # What a push finds by bisection is here the last cost or none, since costs ascend.
            if not tied or tied[-1] < cost - TIE_TOLERANCE:
                tied.append(cost)
            self.waiting.append(_ProgramSuffix(tied[-1], length, action, 0, cost))
        heapq.heapify(self.waiting)
        self.rank_next_best_suffix()

    def push_suffix(self, action: int, successor_rank: int, following_cost: float, following_length: int) -> None:
        """Put a suffix among the waiting."""
        exact = self.action_costs[action] + following_cost
        suffix = _ProgramSuffix(self._snap_to_tied_cost(exact), following_length, action, successor_rank, exact)
        heapq.heappush(self.waiting, suffix)

    def rank_next_best_suffix(self) -> None:
        """Put the best of the waiting in order, if there is one."""
        if self.waiting:
            self.ordered.append(heapq.heappop(self.waiting))

    def _snap_to_tied_cost(self, cost: float) -> float:
        """The known cost that ``cost`` ties with; a cost that ties with none becomes known itself."""
        index = bisect.bisect_left(self.tied_costs, cost - TIE_TOLERANCE)
        if index == len(self.tied_costs) or self.tied_costs[index] > cost + TIE_TOLERANCE:
            self.tied_costs.insert(index, cost)
        return self.tied_costs[index]


class _LazyProgramRanking:
    """Lazily ranked suffixes of the positions of a policy's graph."""

    def __init__(self, policy: MarkovPolicy, max_length: int) -> None:
        self._policy = policy
        self._space = policy.space
        self._max_length = max_length
        self._rankings: dict[PartialProgramPosition, _RankedProgramSuffixes] = {}
        self._following = functools.cache(self._best_suffixes_after_actions)
        # The best suffix of every position: negative log-probability, infinite where nothing can follow; and the
        # applications still to come in the shortest of the tied best, rejoined layers included.
        self._cost = np.full(self._space.route_position_shape, np.inf)
        self._length = np.zeros(self._space.route_position_shape, dtype=np.int64)
        for applied in range(self._space.max_length, 0, -1):
            cost, length = self._best_suffixes_after_actions(applied)
            total = cost[:, None, None, :] - policy.masked_log_rows(applied)  # [layer, displacement, operator, action]
            self._cost[applied] = total.min(axis=-1)
            tied = total <= self._cost[applied][..., None] + TIE_TOLERANCE
            self._length[applied] = np.where(tied, length[:, None, None, :], _UNREACHED).min(axis=-1)

    def _best_suffixes_after_actions(self, applied: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Cost and length of the best that follows each action, ``[layer, action]``, without the action's cost."""
        rejoin = self._space.rejoin_action
        cost = self._space.gather_successor_values(self._cost, applied, infeasible=np.inf)
        length = self._space.gather_successor_values(self._length, applied, infeasible=0) + 1
        length[:, rejoin] = np.arange(self._space.layers - 1, -1, -1)
        cost[:, rejoin] = np.where(applied + length[:, rejoin] <= self._max_length, 0.0, np.inf)
        return cost, length

    def __iter__(self) -> Iterator[Program]:
        start = self._get_suffix_ranking(self._space.initial_position)
        for suffix in start.ordered:  # the list grows by one suffix after each program, while there are more
            yield self._build_program_from_suffix(suffix)
            self._rank_next_suffix(start)

    def _build_program_from_suffix(self, suffix: _ProgramSuffix) -> Program:
        """The program of a suffix of the start position."""
        actions, position = [], self._space.initial_position
        while suffix.action != self._space.rejoin_action:
            actions.append(suffix.action)
            position = self._space.position_after_action(position, suffix.action)
            suffix = self._get_suffix_ranking(position).ordered[suffix.successor_rank]
        return self._space.program_from_actions(actions)

    def _rank_next_suffix(self, ranking: _RankedProgramSuffixes) -> None:
        """Order one more suffix of a position.

        That may need one more at the next position of the last suffix, and so on along one path, which is
        walked down and up again in loops, since routes may be longer than Python's stack is deep.
        """
        path = [ranking]
        while (following := self._get_suffix_ranking_after_action(path[-1])) is not None:
            if len(following.ordered) > path[-1].ordered[-1].successor_rank + 1:
                break
            path.append(following)
        for visited in reversed(path):
            # The last ordered suffix is used: its action may also be followed by the next best there.
            action, successor_rank = visited.ordered[-1].action, visited.ordered[-1].successor_rank + 1
            following = self._get_suffix_ranking_after_action(visited)
            if following is not None and len(following.ordered) > successor_rank:
                successor = following.ordered[successor_rank]
                visited.push_suffix(action, successor_rank, successor.exact_cost, successor.length + 1)
            visited.rank_next_best_suffix()

    def _get_suffix_ranking_after_action(self, ranking: _RankedProgramSuffixes) -> _RankedProgramSuffixes | None:
        """The ranking of the position that the last ordered suffix goes to first; None when it rejoins at once."""
        action = ranking.ordered[-1].action
        if action == self._space.rejoin_action:
            return None
        return self._get_suffix_ranking(self._space.position_after_action(ranking.position, action))

    def _get_suffix_ranking(self, position: PartialProgramPosition) -> _RankedProgramSuffixes:
        """A position's ranking, begun with the best suffix after each possible action."""
        if position not in self._rankings:
            costs = -self._policy.masked_log_row(position)
            following_costs, lengths = (values[position.layer] for values in self._following(position.applied))
            totals = costs + following_costs
            ranking = _RankedProgramSuffixes(position, costs.tolist())
            best_first = np.argsort(totals, kind="stable")[: np.isfinite(totals).sum()]
            ranking.begin(best_first.tolist(), totals[best_first].tolist(), lengths[best_first].tolist())
            self._rankings[position] = ranking
        return self._rankings[position]


# --- routes by the probability of all their programs ------------------------------------------------------------------


class _RoutesByTotalProbability:
    """Routes by total probability: the probability of a route is that of all programs that write it, added up.

    Programs of one route differ only in where they rejoin: after their last deviation they may move forward any number
    of times first. So a route is its deviations and a tail, and the programs of a tail are summed backwards, once for
    every position. Best-first search over deviations, led by the exact best suffix of each position, gives the
    routes in order.
    """

    def __init__(self, policy: MarkovPolicy) -> None:
        self._policy = policy
        self._space = policy.space
        # Log-probabilities of what may follow every position: all ways to end without another deviation, together; and
        # the best of those with at least one more.
        self._tail = np.full(self._space.route_position_shape, -np.inf)
        self._deviating = np.full(self._space.route_position_shape, -np.inf)
        self._waiting: list[tuple[float, tuple[int, ...], bool, float, PartialProgramPosition]] = []
        for applied in range(self._space.max_length, 0, -1):
            self._compute_future_log_probabilities(applied)

    def _compute_future_log_probabilities(self, applied: int) -> None:
        """One step of the backward pass over all positions and actions."""
        forward, rejoin = self._space.forward_action, self._space.rejoin_action
        rows = self._policy.masked_log_rows(applied)  # [layer, displacement, operator, action]
        tails = self._space.gather_successor_values(self._tail, applied, infeasible=-np.inf)
        deviating = self._space.gather_successor_values(self._deviating, applied, infeasible=-np.inf)
        # Another move than forward is the deviation: whatever is best may follow it.
        futures = np.maximum(tails, deviating)
        futures[:, forward] = deviating[:, forward]
        futures[:, rejoin] = -np.inf
        self._tail[applied] = np.logaddexp(rows[..., rejoin], rows[..., forward] + tails[:, None, None, forward])
        self._deviating[applied] = (rows + futures[:, None, None, :]).max(axis=-1)

    def __iter__(self) -> Iterator[Candidate]:
        """Routes, largest probability first; of equal ones the one whose first differing action comes first."""
        self._push_suffixes((), 0.0, self._space.initial_position)
        rank = 0
        while self._waiting:
            cost, actions, is_whole, written, position = heapq.heappop(self._waiting)
            if is_whole:
                rank += 1
                program = self._space.program_from_actions(list(actions))
                yield Candidate(program.to_route(self._space.layers), program, -cost, rank=rank)
            else:
                self._push_deviations(actions, written, position)

    def _push_deviations(self, actions: tuple[int, ...], written: float, position: PartialProgramPosition) -> None:
        """One more deviation, here or after some moves forward: each of them is entered, each once."""
        forward, rejoin = self._space.forward_action, self._space.rejoin_action
        while True:
            row = self._policy.masked_log_row(position)
            for action in np.flatnonzero(np.isfinite(row)).tolist():
                if action not in (forward, rejoin):
                    following = self._space.position_after_action(position, action)
                    self._push_suffixes((*actions, action), written + float(row[action]), following)
            if row[forward] == -np.inf:  # also where it is not feasible
                return
            written += float(row[forward])
            actions = (*actions, forward)
            position = self._space.position_after_action(position, forward)

    def _push_suffixes(self, actions: tuple[int, ...], written: float, position: PartialProgramPosition) -> None:
        index = (position.applied, position.layer, position.displacement, position.operator)
        for is_whole, following in ((True, float(self._tail[index])), (False, float(self._deviating[index]))):
            if np.isfinite(following):
                heapq.heappush(self._waiting, (-(written + following), actions, is_whole, written, position))
