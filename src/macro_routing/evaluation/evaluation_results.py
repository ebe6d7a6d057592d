"""What an evaluation gives: one route on a list of examples, or a round of draws."""

from __future__ import annotations

from dataclasses import dataclass

from macro_routing.evaluation.outcome import ExampleOutcome
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Outcome, Score


@dataclass(frozen=True)
class RouteEvaluation:
    """One route on a list of examples."""

    route: Route
    outcomes: tuple[ExampleOutcome, ...]
    from_store: int
    """How many outcomes were known already."""
    failure: str = ""
    """Why the route could not be run, where it could not; all its answers then count as wrong."""

    @property
    def correct(self) -> list[bool]:
        """Right or wrong, example by example."""
        return [outcome.correct for outcome in self.outcomes]

    @property
    def score(self) -> Score:
        """Right answers of all."""
        return Score(sum(self.correct), len(self.outcomes))

    @property
    def cut_off(self) -> float:
        """Share of answers that a budget cut off, in either stage."""
        return sum(outcome.reasoning_cut or outcome.answer_cut for outcome in self.outcomes) / len(self.outcomes)

    @property
    def tokens(self) -> float:
        """Mean number of tokens written per example."""
        return sum(outcome.reasoning_tokens + outcome.answer_tokens for outcome in self.outcomes) / len(self.outcomes)


@dataclass(frozen=True)
class RaceResult:
    """A round of draws, scored as far as the elite needs."""

    outcomes: tuple[Outcome, ...]
    """By draw: a score, or where it was stopped."""
    asked: int
    """Draws × examples."""
    repeated: int
    """Saved because a route was drawn more than once."""
    stopped: int
    """Saved by stopping hopeless routes."""
    from_store: int
    """Known already."""
    cut_off: float
    """Share of the answers looked at that a budget cut off."""
    looked_at: tuple[tuple[Route, int, int], ...]
    """Every different route, how many of its answers were looked at, and the tokens written in them."""

    @property
    def run(self) -> int:
        """Outcomes that had to be worked out."""
        return self.asked - self.repeated - self.stopped - self.from_store
