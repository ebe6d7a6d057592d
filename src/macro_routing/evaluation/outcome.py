"""What one route made of one example."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExampleOutcome:
    """A graded answer, with what it cost and whether a budget cut it off."""

    correct: bool
    prediction: str
    reasoning_tokens: int = 0
    answer_tokens: int = 0
    reasoning_cut: bool = False
    """Whether the reasoning was closed because its budget ran out."""
    answer_cut: bool = False
    reasoning: str = ""
    """What the model wrote before its answer, where it reasons first."""
    text: str = ""
    """The answer as the model wrote it; empty where choices are compared."""
