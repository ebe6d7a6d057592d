"""The base class of every search, and the values that pass through its ask/tell interface.

A search is a value: its state goes in, its next state comes out, nothing is changed in place. ``ask`` of the same state
always gives the same round, so an interrupted run asks again and continues as if nothing had happened. The base class
counts rounds, checks states and outcomes, and records draws; an algorithm implements ``planned_round_sizes``, ``_ask``,
``_list_candidates`` and, if it learns, ``_tell``.
"""

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, TypeVar

from macro_routing.errors import SearchError
from macro_routing.routes.route import Program, Route
from macro_routing.settings import check_integer, check_seed

MAX_EXAMPLES = 10_000_000
Value = TypeVar("Value")


@dataclass(frozen=True)
class Score:
    """How many of ``total`` examples a route answered correctly (the sum of credits if a task gives partial credit)."""

    correct: float
    """Number of correct answers."""
    total: int
    """Number of examples."""

    def __post_init__(self) -> None:
        """Reject what is not a score; NaN fails the comparison too."""
        try:
            correct, total = float(self.correct), int(self.total)
        except (TypeError, ValueError, OverflowError):
            correct, total = float("nan"), 0
        if total < 1 or total != self.total or not 0 <= correct <= total:
            raise SearchError(f"{self.correct!r} correct of {self.total!r} is not a score")
        # Plain numbers, whatever library counted them, so that states can be saved.
        object.__setattr__(self, "correct", int(correct) if correct.is_integer() else correct)
        object.__setattr__(self, "total", total)

    @property
    def accuracy(self) -> float:
        """The share of examples that were correct."""
        return self.correct / self.total


@dataclass(frozen=True)
class ScoringFailure:
    """A route that could not be scored, and why."""

    reason: str
    """Why the route could not be scored."""

    def __post_init__(self) -> None:
        """A reason is a string."""
        if not isinstance(self.reason, str):
            raise SearchError(f"a failure's reason must be a string, not {self.reason!r}")


@dataclass(frozen=True)
class StoppedScore:
    """A draw whose scoring was stopped because it could no longer be among the best; its final score is unknown."""

    correct: float
    scored: int
    total: int

    def __post_init__(self) -> None:
        """Reject what is not a part of a score."""
        if self.scored == self.total:
            raise SearchError("a draw that was scored on all examples was not stopped; tell its Score")
        partial = Score(self.correct, self.scored) if self.scored else Score(0, 1)
        object.__setattr__(self, "correct", partial.correct)
        if self.scored > self.total:
            raise SearchError(f"{self.scored} of {self.total} examples scored is not possible")

    @property
    def accuracy_if_rest_correct(self) -> float:
        """The accuracy if all other examples had been correct."""
        return (self.correct + self.total - self.scored) / self.total


Outcome = Score | ScoringFailure | StoppedScore


@dataclass(frozen=True)
class Proposal:
    """A route to be scored, with the program that wrote it if there is one."""

    route: Route
    program: Program | None = None


@dataclass(frozen=True)
class Round:
    """What a search asks for: scores of these routes on these training examples."""

    number: int
    proposals: tuple[Proposal, ...]
    examples: tuple[int, ...]
    """Indices into the training set."""
    keep: int
    """How many of the best (ties: earlier proposal) the search learns from; it needs no exact scores of the others."""


@dataclass(frozen=True)
class Draw:
    """A proposal and its outcome."""

    round: int
    proposal: Proposal
    outcome: Outcome


@dataclass(frozen=True)
class Candidate:
    """A route to be validated at the end of a search, and how it was found."""

    route: Route
    program: Program | None = None
    """The most probable program of the route; None if the route was not decoded from a policy."""
    log_probability: float | None = None
    raw_rank: int | None = None
    """Rank among all programs, from 1; None if decoding did not reach the route."""
    rank: int | None = None
    """Rank among different routes, from 1."""


@dataclass(frozen=True, eq=False)
class SearchState:
    """Everything a search knows after some rounds; an algorithm that learns adds fields in a subclass.

    ``state_file`` saves the fields of every state in the same way.
    """

    identity: str
    """The search that the state belongs to, as JSON; other searches reject the state."""
    rounds: int = 0
    """Rounds told so far."""
    draws: tuple[Draw, ...] = ()
    stopped: bool = False
    """Whether the search ended before its last round."""
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    """Values computed from the other fields, shared by ``ask``, ``tell`` and ``candidates``; never saved."""

    def get_or_compute(self, name: str, compute: Callable[[], Value]) -> Value:
        """The cached value of ``name``, computed when it is needed for the first time."""
        if name not in self.cache:
            self.cache[name] = compute()
        value: Value = self.cache[name]
        return value


class RoundSize(NamedTuple):
    """The size of a round."""

    draws: int
    """Maximum number of proposals."""
    examples: tuple[int, ...]
    """Indices into the training set."""
    purpose: str = ""
    """What the round is for, where it is not to find routes."""


class Searcher(ABC):
    """Base class of every search for routes; a subclass is a frozen dataclass with at least these three fields."""

    examples: int
    """Number of training examples."""
    settings: Any
    seed: int

    name: ClassVar[str]
    state_type: ClassVar[type[SearchState]] = SearchState

    def __post_init__(self) -> None:
        """Reject bad seeds, and too few examples or too small a budget before anything is scored."""
        check_seed(self.seed)
        check_integer("examples", self.examples, minimum=1, maximum=MAX_EXAMPLES)
        _ = self.planned_round_sizes

    # --- what an algorithm implements -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def planned_round_sizes(self) -> Sequence[RoundSize]:
        """The rounds of the search; it may end earlier."""

    @abstractmethod
    def _ask(self, state: Any) -> Round | None:
        """The next round, made by ``_make_round_from_proposals``; None ends the search."""

    def _tell(self, state: Any, asked: Round, outcomes: Sequence[Outcome]) -> Any:  # noqa: ARG002
        """Learn from a round. ``state`` has its draws recorded already; a search that learns nothing returns it."""
        return state

    @abstractmethod
    def _list_candidates(self, state: Any) -> tuple[Candidate, ...]:
        """The routes to be validated, most promising first."""

    # --- what the base class does ---------------------------------------------------------------------------------

    @property
    def max_rounds(self) -> int:
        """Maximum number of rounds."""
        return len(self.planned_round_sizes)

    @property
    def max_draws_per_round(self) -> int:
        """Maximum number of proposals in a round."""
        return max((planned.draws for planned in self.planned_round_sizes), default=0)

    @property
    def max_candidates(self) -> int:
        """Maximum number of routes to be validated."""
        return int(self.settings.k)

    def max_evaluations(self, done: int = 0) -> int:
        """Maximum number of evaluations (route × example) in the rounds from ``done`` on."""
        return sum(planned.draws * len(planned.examples) for planned in self.planned_round_sizes[done:])

    @cached_property
    def identity(self) -> str:
        """The search and its settings, as JSON; its states carry it."""
        return json.dumps({"search": self.name, **self._search_identity_fields()}, sort_keys=True)

    def _search_identity_fields(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def make_initial_state(self) -> SearchState:
        """The state before the first round."""
        return self.state_type(self.identity)

    def ask(self, state: SearchState) -> Round | None:
        """The next round; None when the search is over. Asking again gives the same round."""
        self.check_state(state)
        return self._pending_round(state)

    def tell(self, state: SearchState, asked: Round, outcomes: Sequence[Outcome]) -> SearchState:
        """The state after ``asked``, with one outcome per proposal, in order."""
        self.check_state(state)
        check_outcomes_match_round(self._pending_round(state), asked, outcomes)
        answered = zip(asked.proposals, outcomes, strict=True)
        draws = tuple(Draw(asked.number, proposal, outcome) for proposal, outcome in answered)
        recorded = replace(state, rounds=state.rounds + 1, draws=state.draws + draws)
        learned: SearchState = self._tell(recorded, asked, outcomes)
        return learned

    def candidates(self, state: SearchState) -> tuple[Candidate, ...]:
        """The routes to be validated, most promising first."""
        self.check_state(state)
        return self._list_candidates(state)

    def _pending_round(self, state: SearchState) -> Round | None:
        return None if self.is_over(state) else state.get_or_compute("pending_round", lambda: self._ask(state))

    def is_over(self, state: SearchState) -> bool:
        """Whether all rounds are told or the search stopped early."""
        return state.stopped or state.rounds >= self.max_rounds

    def check_state(self, state: SearchState) -> None:
        """Reject a state of another search, or of the same one with other settings."""
        if state.identity != self.identity or not isinstance(state, self.state_type):
            raise SearchError(
                "this state belongs to another search; continue it with the settings it was started with:"
                f" {state.identity}, not {self.identity}"
            )

    def _make_round_from_proposals(
        self, state: SearchState, proposals: Sequence[Proposal], keep: int | None = None
    ) -> Round | None:
        """The state's next round; without ``keep`` every score matters, without proposals there is no round."""
        if not proposals:
            return None
        examples = self.planned_round_sizes[state.rounds].examples
        return Round(state.rounds, tuple(proposals), examples, len(proposals) if keep is None else keep)


def check_outcomes_match_round(expected: Round | None, asked: Round, outcomes: Sequence[Outcome]) -> None:
    """Reject outcomes of a round that was not asked, incomplete outcomes and scores over other examples."""
    if asked != expected:
        raise SearchError(f"round {asked.number} was not asked in this state; tell the outcomes of the round from ask")
    if len(outcomes) != len(asked.proposals):
        raise SearchError(
            f"round {asked.number} has {len(asked.proposals)} proposals, but {len(outcomes)} outcomes came"
        )
    for outcome in outcomes:
        if not isinstance(outcome, Outcome):
            raise SearchError(
                f"{outcome!r} is not an outcome; tell a Score(correct, total) or a ScoringFailure(reason) per proposal"
            )
        if isinstance(outcome, Score | StoppedScore) and outcome.total != len(asked.examples):
            raise SearchError(f"a score over {outcome.total} examples came, but {len(asked.examples)} were asked for")


def rank_draws(draws: Sequence[Draw]) -> list[Draw]:
    """Scored draws of different routes, best first: accuracy, then more examples, shorter route, earlier draw.

    The first is the paper's variant without decoding ("no Vit."): the best sampled route on its own examples.
    """
    scored = [
        ((-draw.outcome.accuracy, -draw.outcome.total, draw.proposal.route.length), draw)
        for draw in draws
        if isinstance(draw.outcome, Score)
    ]
    first: dict[Route, Draw] = {}
    for _, draw in sorted(scored, key=itemgetter(0)):  # a stable sort keeps the earlier draw first
        first.setdefault(draw.proposal.route, draw)
    return list(first.values())
