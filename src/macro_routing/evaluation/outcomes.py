"""Outcomes: one route on one example, one route on a list of examples, a round of draws."""

from dataclasses import dataclass, field

from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.search.searcher import Outcome, Score


@dataclass(frozen=True)
class ExampleOutcome:
    """A graded answer, with its length and whether a token budget truncated it."""

    correct: bool
    """Whether the answer is correct."""
    prediction: str
    """What was read from the answer; the letter where there are choices."""
    reasoning_tokens: int = 0
    """Number of generated tokens of reasoning."""
    answer_tokens: int = 0
    """Number of generated tokens of the answer."""
    reasoning_truncated: bool = False
    """Whether the reasoning ended because its budget ran out."""
    answer_truncated: bool = False
    """Whether the answer ended because its budget ran out."""
    reasoning: str = ""
    """Text that the model generated before its answer, if it reasons first."""
    text: str = ""
    """The answer as generated; empty when choices are compared by likelihood."""
    log_likelihoods: tuple[float, ...] = field(default=(), compare=False)
    """Of every choice, when choices are compared by likelihood; the last digits may depend on the batch."""

    @property
    def truncated(self) -> bool:
        """Whether a budget truncated the reasoning or the answer."""
        return self.reasoning_truncated or self.answer_truncated

    @property
    def generated_token_count(self) -> int:
        """Number of generated tokens."""
        return self.reasoning_tokens + self.answer_tokens


@dataclass(frozen=True)
class RouteEvaluation:
    """One route on a list of examples."""

    route: RouteOrMixture
    """The route or mixture that was run."""
    outcomes: tuple[ExampleOutcome, ...]
    """One outcome for each example, in the order of the examples."""
    from_store: int
    """Number of outcomes that the store already held."""
    failure: str = ""
    """Why the route could not be run, if it could not; all its answers then count as wrong."""

    @property
    def correct(self) -> list[bool]:
        """Whether each answer is correct."""
        return [outcome.correct for outcome in self.outcomes]

    @property
    def score(self) -> Score:
        """Number of correct answers."""
        return Score(sum(self.correct), len(self.outcomes))

    @property
    def truncated_share(self) -> float:
        """Share of answers that a budget truncated, in either stage."""
        return sum(outcome.truncated for outcome in self.outcomes) / len(self.outcomes)

    @property
    def mean_tokens(self) -> float:
        """Mean number of generated tokens per example."""
        return sum(outcome.generated_token_count for outcome in self.outcomes) / len(self.outcomes)


@dataclass(frozen=True)
class RacedRoundScores:
    """A round of draws, scored as far as the elite needs."""

    outcomes: tuple[Outcome, ...]
    """By draw: a score, or where scoring stopped."""
    requested: int
    """Draws × examples."""
    duplicates: int
    """Evaluations saved because a route was drawn more than once."""
    stopped: int
    """Evaluations saved by stopping routes that could no longer reach the elite."""
    from_store: int
    """Evaluations that the store already held."""
    truncated_share: float
    """Share of the scored answers that a budget truncated."""
    answers: tuple[tuple[RouteOrMixture, int, int], ...]
    """Each distinct route, the number of its scored answers, and the tokens generated in them."""

    @property
    def computed_evaluations(self) -> int:
        """Evaluations that had to be computed."""
        return self.requested - self.duplicates - self.stopped - self.from_store
