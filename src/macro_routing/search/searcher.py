"""The ask/tell protocol every search obeys, and the values that pass through it.

A search is a value: its state goes in, its next state comes out, nothing is changed in place. ``ask`` of the same
state always gives the same round, so a run that was cut off asks again and continues as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SearchError
from macro_routing.routes.route import Program, Route


@dataclass(frozen=True)
class Score:
    """How many of ``total`` examples a route got right (the sum of credits where a task gives partial credit)."""

    correct: float
    total: int

    def __post_init__(self) -> None:
        """Refuse what is no accuracy; NaN fails the comparison too."""
        try:
            correct, total = float(self.correct), int(self.total)
        except (TypeError, ValueError, OverflowError):
            correct, total = float("nan"), 0
        if total < 1 or total != self.total or not 0 <= correct <= total:
            raise SearchError(f"{self.correct!r} right of {self.total!r} is not a score")
        # Plain numbers, whatever library counted them, so that states can be saved.
        object.__setattr__(self, "correct", int(correct) if correct.is_integer() else correct)
        object.__setattr__(self, "total", total)

    @property
    def accuracy(self) -> float:
        """The share of examples that were right."""
        return self.correct / self.total


@dataclass(frozen=True)
class Failure:
    """A route that could not be scored, and why."""

    reason: str

    def __post_init__(self) -> None:
        """A reason is words."""
        if not isinstance(self.reason, str):
            raise SearchError(f"a failure's reason must be a text, not {self.reason!r}")


@dataclass(frozen=True)
class Stopped:
    """A draw that was given up because it could no longer be among the best; its final score is not known."""

    correct: float
    scored: int
    total: int

    def __post_init__(self) -> None:
        """Refuse what is no part of a score."""
        if self.scored == self.total:
            raise SearchError("a draw that was scored on all examples was not stopped; tell its Score")
        partial = Score(self.correct, self.scored) if self.scored else Score(0, 1)
        object.__setattr__(self, "correct", partial.correct)
        if self.scored > self.total:
            raise SearchError(f"{self.scored} of {self.total} examples scored is not possible")

    @property
    def max_accuracy(self) -> float:
        """The accuracy it would have had if all the rest had been right."""
        return (self.correct + self.total - self.scored) / self.total


Outcome = Score | Failure | Stopped


@dataclass(frozen=True)
class Proposal:
    """A route to be scored, with the program that wrote it where there is one."""

    route: Route
    program: Program | None = None


@dataclass(frozen=True)
class Round:
    """What a search wants to know next: these routes on these training examples."""

    number: int
    proposals: tuple[Proposal, ...]
    examples: tuple[int, ...]
    """Indices into the training set."""
    keep: int
    """How many of the best (ties by earlier proposal) change what the search does; the others' exact scores do not."""


@dataclass(frozen=True)
class Draw:
    """A proposal that was answered."""

    round: int
    proposal: Proposal
    outcome: Outcome


@dataclass(frozen=True)
class ExpectedGain:
    """What a search expects a route to gain over the standard pass, as a fraction, from the examples it saw."""

    mean: float
    variance: float


@dataclass(frozen=True)
class Candidate:
    """A route to be considered at the end of a search, and how it came to be one."""

    route: Route
    program: Program | None = None
    """The most probable program of the route; None when the route was not decoded from a policy."""
    log_probability: float | None = None
    raw_rank: int | None = None
    """Place among all programs, from 1; None when decoding did not reach the route."""
    rank: int | None = None
    """Place among different routes, from 1."""
    expected: ExpectedGain | None = None
    """None when the search has no opinion on how good it is."""


@dataclass(frozen=True, eq=False)
class SearchState:
    """Everything a search knows; saved and loaded by ``state_file``."""

    identity: str
    """The settings the state belongs to, as JSON; a search refuses another search's state."""
    rounds: int = 0
    """Rounds answered so far."""
    draws: tuple[Draw, ...] = ()
    arrays: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    stopped: bool = False
    """Whether the search ended before its last round."""

    def told(self, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """The state with one more round answered, everything else unchanged."""
        answered = zip(asked.proposals, outcomes, strict=True)
        draws = tuple(Draw(asked.number, proposal, outcome) for proposal, outcome in answered)
        return replace(self, rounds=self.rounds + 1, draws=self.draws + draws)


class SearchPlan(Protocol):
    """What is known of every search before it begins."""

    @property
    def max_rounds(self) -> int:
        """Most rounds there can be."""
        ...

    @property
    def max_draws(self) -> int:
        """Most proposals of a round."""
        ...

    @property
    def max_candidates(self) -> int:
        """Most routes to be validated in the end."""
        ...

    @property
    def settings(self) -> Any:
        """Its settings, a frozen dataclass."""
        ...

    @property
    def identity(self) -> str:
        """What the search is, as JSON."""
        ...

    def max_evaluations(self, done: int = 0) -> int:
        """Outcomes, route × example, that the rounds from ``done`` on may ask for."""
        ...


@runtime_checkable
class Searcher(SearchPlan, Protocol):
    """What every search for routes offers."""

    def start(self) -> SearchState:
        """The state before the first round."""
        ...

    def ask(self, state: SearchState) -> Round | None:
        """The next round; None when the search is over. Asking again gives the same round."""
        ...

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """The state after the round was answered, one outcome per proposal, in order."""
        ...

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The routes to be validated, most promising first."""
        ...


@runtime_checkable
class HoldoutSearcher(Protocol):
    """A search that keeps training examples back, on which its finalists meet the standard pass."""

    @property
    def holdout(self) -> tuple[int, ...]:
        """Those examples, indices into the training set."""
        ...

    @property
    def max_error_probability(self) -> float:
        """A finalist is chosen when it is no better than the standard pass with at most this probability."""
        ...


def check_state(identity: str, state: SearchState) -> None:
    """Refuse a state that another search, or the same one with other settings, has left."""
    if state.identity != identity:
        raise SearchError(
            "this state belongs to another search; continue it with the settings it was started with:"
            f" {state.identity}, not {identity}"
        )


def check_outcomes(expected: Round | None, asked: Round, outcomes: Sequence[Outcome]) -> None:
    """Refuse answers to a round that was not asked, incomplete answers and scores over other examples."""
    if asked != expected:
        raise SearchError(f"round {asked.number} was not asked in this state; tell the answers to the round from ask")
    if len(outcomes) != len(asked.proposals):
        raise SearchError(
            f"round {asked.number} has {len(asked.proposals)} proposals, but {len(outcomes)} answers came"
        )
    for outcome in outcomes:
        if not isinstance(outcome, Outcome):
            raise SearchError(
                f"{outcome!r} is no outcome; tell a Score(correct, total) or a Failure(reason) per proposal"
            )
        if isinstance(outcome, Score | Stopped) and outcome.total != len(asked.examples):
            raise SearchError(f"a score over {outcome.total} examples came, but {len(asked.examples)} were asked for")


def rank_draws(draws: Sequence[Draw]) -> list[Draw]:
    """Scored draws of different routes, best first: accuracy, then more examples, shorter route, earlier draw.

    The first is the paper's variant without decoding ("no Vit."): the best sampled route on its own examples.
    """
    scored = [draw for draw in draws if isinstance(draw.outcome, Score)]
    first: dict[Route, Draw] = {}
    for draw in sorted(scored, key=_merit):  # a stable sort keeps the earlier draw first
        first.setdefault(draw.proposal.route, draw)
    return list(first.values())


def _merit(draw: Draw) -> tuple[float, int, int]:
    assert isinstance(draw.outcome, Score)
    return -draw.outcome.accuracy, -draw.outcome.total, draw.proposal.route.length
