"""The Markov policy over programs: prior, masked rows, sampling, log-probability, update (specification §3)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SearchError
from macro_routing.routes.route import Program, Route
from macro_routing.routes.space import PartialProgramPosition, RouteSpace
from macro_routing.search.policy_settings import check_epsilons


@dataclass(frozen=True, eq=False)
class MarkovPolicy:
    """A row of action probabilities per state; immutable, so its masked rows can be computed once and shared."""

    space: RouteSpace
    table: NDArray[np.float64]
    """Unmasked rows, ``[layer, phase, displacement, operator, action]``; each sums to 1."""

    def __post_init__(self) -> None:
        """Keep a read-only copy; reject tables that do not hold probabilities."""
        table = np.array(self.table, dtype=np.float64)
        if table.shape != self.space.table_shape:
            raise SearchError(f"the policy table has the shape {table.shape}, the space needs {self.space.table_shape}")
        if not np.isfinite(table).all() or (table < 0).any() or abs(table.sum(axis=-1) - 1).max() > 1e-9:
            raise SearchError("every row of a policy table must hold probabilities that sum to 1")
        table.setflags(write=False)
        object.__setattr__(self, "table", table)

    @classmethod
    def make_prior(
        cls, space: RouteSpace, epsilon_local: float = 0.2, epsilon_operator: float = 0.0867
    ) -> "MarkovPolicy":
        """The forward-biased prior: mostly the next layer, a little of every other move, rejoin and add."""
        check_epsilons(epsilon_local, epsilon_operator)
        row = np.zeros(space.action_count)
        row[: space.move_action_count + 1] = epsilon_local / (space.move_action_count + 1)
        adds = space.action_count - space.move_action_count - 1
        if adds:
            row[space.move_action_count + 1 :] = epsilon_operator / adds
        # Without adds their mass goes to the forward move.
        row[space.forward_action] += 1 - epsilon_local - (epsilon_operator if adds else 0)
        table = np.broadcast_to(row, space.table_shape).copy()
        table[space.layers - 1] = 0
        table[space.layers - 1, ..., space.rejoin_action] = 1
        return cls(space, table)

    # --- masked rows: the one source of sampling, log-probability and decoding ----------------------------------

    @cached_property
    def _transition_log_probabilities(self) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(self.table)

    @cached_property
    def _log_feasible_action_mass(self) -> NDArray[np.float64]:
        """Log of each row's feasible mass, ``[applied, layer, displacement, operator]``; -inf where there is none."""
        totals = [
            np.einsum("ldoa,la->ldo", self.table[:, self.space.compute_route_length_phase(applied)], mask)
            for applied, mask in enumerate(self.space.feasibility_mask.astype(np.float64))
        ]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.stack(totals)))

    def masked_log_rows(self, applied: int) -> NDArray[np.float64]:
        """Masked, renormalised log rows of all states after ``applied`` applications.

        Axes ``[layer, displacement, operator, action]``, factors that are off with size one.
        """
        mask = self.space.feasibility_mask[applied][:, None, None, :]
        return self._mask_log_rows(
            self._transition_log_probabilities[:, self.space.compute_route_length_phase(applied)],
            mask,
            self._log_feasible_action_mass[applied],
        )

    def masked_log_row(self, position: PartialProgramPosition) -> NDArray[np.float64]:
        """The masked, renormalised log row at one position; the same numbers as in ``masked_log_rows``, read-only."""
        row = self._masked_log_row_cache.get(position)
        if row is None:
            layer, phase, displacement, operator = self.space.state_index(position)
            row = self._mask_log_rows(
                self._transition_log_probabilities[layer, phase, displacement, operator],
                self.space.feasibility_mask[position.applied, layer],
                self._log_feasible_action_mass[position.applied, layer, displacement, operator],
            )
            row.setflags(write=False)
            self._masked_log_row_cache[position] = row
        return row

    @cached_property
    def _masked_log_row_cache(self) -> dict[PartialProgramPosition, NDArray[np.float64]]:
        """Sampling, decoding and log-probabilities meet the same positions again and again."""
        return {}

    def _mask_log_rows(
        self, rows: NDArray[np.float64], mask: NDArray[np.bool_], log_totals: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Rejoin is always feasible: where masking leaves a row no mass at all, it takes all of it."""
        empty = np.asarray(log_totals == -np.inf)
        masked = np.where(mask, rows - np.where(empty, 0, log_totals)[..., None], -np.inf)
        masked[..., self.space.rejoin_action] = np.where(empty, 0.0, masked[..., self.space.rejoin_action])
        return masked

    # --- programs -----------------------------------------------------------------------------------------------

    def sample_program(self, rng: np.random.Generator, temperature: float = 1.0) -> Program:
        """Draw one program; the masked rows are raised to ``1/temperature`` first."""
        return self.space.program_from_actions(self.sample_actions(rng, temperature))

    def sample_actions(self, rng: np.random.Generator, temperature: float = 1.0) -> list[int]:
        """The actions of such a program, without the final rejoin."""
        actions: list[int] = []
        position = self.space.initial_position
        known = self._cumulative_probabilities[temperature]
        while True:
            cumulative = known.get(position)
            if cumulative is None:
                row = self.masked_log_row(position) / temperature
                cumulative = known[position] = np.exp(row - row.max()).cumsum().tolist()
            action = bisect_right(cumulative, rng.random() * cumulative[-1])
            if action == self.space.rejoin_action:
                return actions
            actions.append(action)
            position = self.space.position_after_action(position, action)

    @cached_property
    def _cumulative_probabilities(self) -> defaultdict[float, dict[PartialProgramPosition, list[float]]]:
        """Cumulative sampling rows by temperature, kept for the draws of one iteration."""
        return defaultdict(dict)

    def log_probability(self, program: Program) -> float:
        """Log-probability of writing exactly this program; -inf where a row has no mass for it."""
        total = 0.0
        for position, action in self.space.list_program_actions_with_positions(program):
            total += self.masked_log_row(position).item(action)
        return total

    def find_most_probable_program(self, route: Route) -> Program:
        """Of the programs that execute ``route``, which rejoin earlier or later, the most probable one."""
        shortest = self.space.route_to_program(route)
        programs = [Program(route.steps[:kept]) for kept in range(len(shortest.steps) + 1, route.length + 1)]
        return max([shortest, *(programs if shortest.rejoin else [])], key=self.log_probability)

    # --- update -------------------------------------------------------------------------------------------------

    def update_from_programs(
        self, programs: Sequence[Program], weights: Sequence[float], alpha: float, smoothing: float = 1.0
    ) -> "MarkovPolicy":
        """The policy after weighted counting; states that no weighted program visits keep their row exactly.

        ``alpha`` times the current row is added to the counts; ``smoothing`` (η) moves that part of the way
        from the current row to the new one.
        """
        counts: dict[tuple[int, int, int, int], NDArray[np.float64]] = defaultdict(
            partial(np.zeros, self.space.action_count)
        )
        for program, weight in zip(programs, weights, strict=True):
            for position, action in self.space.list_program_actions_with_positions(program) if weight > 0 else ():
                counts[self.space.state_index(position)][action] += weight
        table = self.table.copy()
        for state, count in counts.items():
            fresh = alpha * self.table[state] + count
            mixed = (1 - smoothing) * self.table[state] + smoothing * fresh / fresh.sum()
            table[state] = mixed / mixed.sum()
        return MarkovPolicy(self.space, table)
