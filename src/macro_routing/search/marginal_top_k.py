"""The most probable *routes*: the probability of a route is that of all programs that write it, added up.

Programs of one route differ only in where they rejoin: after their last deviation they may move forward any number of
times first. So a route is its deviations and a tail, and the programs of a tail are summed backwards, once for every
position. Best-first search over deviations, led by the exact best completion of each position, gives the routes in
order.
"""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Program
from macro_routing.routes.space import Position, RouteSpace
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.searcher import Candidate
from macro_routing.settings import check_integer

Floats = NDArray[np.float64]


def decode_marginal_routes(policy: MarkovPolicy, k: int) -> tuple[Candidate, ...]:
    """The ``k`` routes with the largest total probability, or all there are when there are fewer."""
    check_integer("k", k, minimum=1)
    return tuple(itertools.islice(_iterate_routes(policy), k))


@dataclass(frozen=True)
class _FutureLogProbabilities:
    """Log-probabilities of what may follow every position, ``[applied, layer, displacement, operator]``."""

    tail: Floats
    """All ways to end without another deviation, together."""
    deviating: Floats
    """The best of those with at least one more."""

    @classmethod
    def from_policy(cls, policy: MarkovPolicy) -> "_FutureLogProbabilities":
        """One backward pass over all positions and actions."""
        space = policy.space
        layers, _, displacements, operators, _ = space.table_shape
        shape = (space.max_length + 2, layers, displacements, operators)
        future = cls(np.full(shape, -np.inf), np.full(shape, -np.inf))
        for applied in range(space.max_length, 0, -1):
            rows = policy.masked_log_rows(applied)  # [layer, displacement, operator, action]
            tails, futures = future.best_after_actions(space, applied)
            forward = rows[..., space.forward_action] + tails[:, None, None, space.forward_action]
            future.tail[applied] = np.logaddexp(rows[..., space.rejoin_action], forward)
            future.deviating[applied] = (rows + futures[:, None, None, :]).max(axis=-1)
        return future

    def best_after_actions(self, space: RouteSpace, applied: int) -> tuple[Floats, Floats]:
        """The tail after each action, and the best that may follow when a deviation is still wanted."""
        target = np.clip(np.arange(space.layers)[:, None] + space.action_deltas, 0, space.layers - 1)
        arrival = (applied + 1, target, space.action_arrivals[:, 0], space.action_arrivals[:, 1])
        feasible = space.feasibility_mask[applied]
        tails = np.where(feasible, self.tail[arrival], -np.inf)
        deviating = np.where(feasible, self.deviating[arrival], -np.inf)
        # Another move than forward is the deviation: whatever is best may follow it.
        futures = np.maximum(tails, deviating)
        futures[:, space.forward_action] = deviating[:, space.forward_action]
        futures[:, space.rejoin_action] = -np.inf
        return tails, futures

    def at_position(self, space: RouteSpace, position: Position) -> tuple[float, float]:
        """Tail, and best with a deviation, at one position."""
        layer, _, displacement, operator = space.state_index(position)
        index = (position.applied, layer, displacement, operator)
        return float(self.tail[index]), float(self.deviating[index])


def _iterate_routes(policy: MarkovPolicy) -> Iterator[Candidate]:
    """Routes by total probability, largest first; of equal ones the one whose first differing action comes first."""
    space, future = policy.space, _FutureLogProbabilities.from_policy(policy)
    waiting: list[tuple[float, tuple[int, ...], bool, float, Position]] = []

    def push_completions(actions: tuple[int, ...], written: float, position: Position) -> None:
        tail, deviating = future.at_position(space, position)
        for is_whole, following in ((True, tail), (False, deviating)):
            if np.isfinite(following):
                heapq.heappush(waiting, (-(written + following), actions, is_whole, written, position))

    push_completions((), 0.0, space.start_position)
    rank = 0
    while waiting:
        cost, actions, is_whole, written, position = heapq.heappop(waiting)
        if is_whole:
            rank += 1
            program: Program = space.program_from_actions(list(actions))
            yield Candidate(program.expand(space.layers), program, -cost, rank=rank)
            continue
        # One more deviation, here or after some moves forward: each of them is entered, each once.
        while True:
            row = policy.masked_log_row(position)
            for action in np.flatnonzero(np.isfinite(row)).tolist():
                if action not in (space.forward_action, space.rejoin_action):
                    push_completions(
                        (*actions, action), written + float(row[action]), space.next_position(position, action)
                    )
            if (
                not space.feasibility_mask[position.applied, position.layer, space.forward_action]
                or row[space.forward_action] == -np.inf
            ):
                break
            written += float(row[space.forward_action])
            actions, position = (*actions, space.forward_action), space.next_position(position, space.forward_action)
