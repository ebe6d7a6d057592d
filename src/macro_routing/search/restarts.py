"""MACRO restarted with fresh seeds until a budget is spent: what the literal search leaves over is used, not lost.

A restart begins from the prior with a seed of its own; the first has the given seed and is the literal search. The
candidates are those of all restarts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from macro_routing.search.macro import MacroSearch, MacroSettings
from macro_routing.search.searcher import Candidate, Draw, Outcome, Round, SearchState, check_outcomes, check_state
from macro_routing.settings import check_integer

_RESTARTING = 3
_STARTS = "starts"


@dataclass(frozen=True)
class RestartedSearch:
    """MACRO's searches one after the other, a pure function of its fields."""

    first: MacroSearch
    budget: int
    """Route × example outcomes that may be asked for."""

    def __post_init__(self) -> None:
        """Refuse a budget that does not pay for a round."""
        least = self.first.settings.draws * len(self.first.schedule[0])
        check_integer("budget", self.budget, minimum=least)

    @property
    def settings(self) -> MacroSettings:
        """Those of every restart."""
        return self.first.settings

    @property
    def max_rounds(self) -> int:
        """Most rounds there can be: the first one of a search asks for least."""
        return self.budget // (self.max_draws * len(self.first.schedule[0]))

    @property
    def max_draws(self) -> int:
        """Most proposals of a round."""
        return self.first.settings.draws

    @property
    def max_candidates(self) -> int:
        """Most routes to be validated: a final set for every restart."""
        return self.first.settings.k * self.max_rounds

    def max_evaluations(self, done: int = 0) -> int:
        """Outcomes that the rounds from ``done`` on may ask for."""
        return max(0, self.budget - done * self.max_draws * len(self.first.schedule[0]))

    @cached_property
    def identity(self) -> str:
        """What the search is, for recognising its states."""
        return json.dumps({"search": "macro-restarts", **dataclasses.asdict(self)}, sort_keys=True)

    def start(self) -> SearchState:
        """The first search before its first round."""
        return SearchState(self.identity, arrays={_STARTS: np.zeros(1), **self._named(0, self.first.start())})

    def ask(self, state: SearchState) -> Round | None:
        """The next round of the search that is going on, or the first of a new one."""
        check_state(self.identity, state)
        if state.stopped:
            return None
        asked = self._ask(state)
        return asked if self._spent(state) + len(asked.proposals) * len(asked.examples) <= self.budget else None

    def _ask(self, state: SearchState) -> Round:
        number = self._number(state)
        asked = self.search(number).ask(self._inner(state, number))
        if asked is None:  # that one is over
            fresh = self.search(number + 1)
            asked = fresh.ask(fresh.start())
        assert asked is not None
        return replace(asked, number=state.rounds)

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """Move on the search that asked."""
        check_outcomes(self.ask(state), asked, outcomes)
        number, starts = self._number(state), state.arrays[_STARTS]
        inner = self._inner(state, number)
        if self.search(number).ask(inner) is None:
            number, starts = number + 1, np.append(starts, state.rounds)
            inner = self.search(number).start()
        inner = self.search(number).tell(inner, replace(asked, number=inner.rounds), outcomes)
        arrays = {**state.arrays, _STARTS: starts, **self._named(number, inner)}
        return replace(state.told(asked, outcomes), arrays=arrays)

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The final sets of all searches, each different route once, ranked as they come."""
        check_state(self.identity, state)
        found: dict[object, Candidate] = {}
        for number in range(self._number(state) + 1):
            for candidate in self.search(number).candidates(self._inner(state, number)):
                found.setdefault(candidate.route, candidate)
        return tuple(replace(candidate, rank=rank) for rank, candidate in enumerate(found.values(), 1))

    def search(self, number: int) -> MacroSearch:
        """The search of a restart, the first being the literal one."""
        if number == 0:
            return self.first
        seed = int(np.random.default_rng([self.first.seed, _RESTARTING, number]).integers(2**32))
        return replace(self.first, seed=seed)

    def _number(self, state: SearchState) -> int:
        return len(state.arrays[_STARTS]) - 1

    def _named(self, number: int, inner: SearchState) -> dict[str, np.ndarray]:
        return {f"policy_{number}": inner.arrays["policy"], f"stopped_{number}": np.array([float(inner.stopped)])}

    def _inner(self, state: SearchState, number: int) -> SearchState:
        """The state of one search, out of that of all."""
        starts = [int(start) for start in state.arrays[_STARTS]]
        begin, end = starts[number], [*starts, state.rounds][number + 1]
        return SearchState(
            self.search(number).identity,
            end - begin,
            tuple(_moved(draw, begin) for draw in state.draws if begin <= draw.round < end),
            {"policy": state.arrays[f"policy_{number}"]},
            bool(state.arrays[f"stopped_{number}"][0]),
        )

    def _spent(self, state: SearchState) -> int:
        starts = [int(start) for start in state.arrays[_STARTS]]
        lengths = np.diff([*starts, state.rounds])
        sizes = [len(self.first.schedule[place]) for length in lengths for place in range(int(length))]
        return self.max_draws * sum(sizes)


def _moved(draw: Draw, begin: int) -> Draw:
    return replace(draw, round=draw.round - begin)
