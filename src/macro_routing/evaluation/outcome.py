"""The outcome of one route on one example."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExampleOutcome:
    """A graded answer, with its length and whether a token budget truncated it."""

    correct: bool
    prediction: str
    reasoning_tokens: int = 0
    answer_tokens: int = 0
    reasoning_truncated: bool = False
    """Whether the reasoning ended because its budget ran out."""
    answer_truncated: bool = False
    reasoning: str = ""
    """Text that the model generated before its answer, if it reasons first."""
    text: str = ""
    """The answer as generated; empty when choices are compared by likelihood."""

    @property
    def truncated(self) -> bool:
        """Whether a budget truncated the reasoning or the answer."""
        return self.reasoning_truncated or self.answer_truncated

    @property
    def tokens(self) -> int:
        """Number of generated tokens."""
        return self.reasoning_tokens + self.answer_tokens
