"""How long an ask may take before its worker is taken to hang: longer for larger asks, by what others have taken.

Asks differ a thousandfold in size, machines and models as much in speed. So the allowance that is set is the least; it
grows with the routes, the examples and the longest texts of an ask, carefully while nothing was answered yet, and then
by the seconds that answers of the same kind have really taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from macro_routing.evaluation.executor import WorkItem

_USUAL = 64.0
"""Standard passes with short answers that the allowance is meant for; a CPU's units have as many examples."""
_SHORT = 128.0
"""Tokens to be written that count as much as reading a prompt."""
_UNMEASURED = 8.0
"""Most that the allowance is multiplied with before there is an answer to measure by.

A worker that hangs from the start must be found out, too; an ask of several routes that it hits is asked in parts.
"""
_SLACK = 10.0
"""How much slower than others before it an ask may be: prompts and machines differ."""


def estimate_work(ask: WorkItem, most_tokens: int) -> float:
    """An ask's work in standard passes with short answers; ``most_tokens`` may be written for each example."""
    examples = 1 if ask.paired else len(ask.unit)
    passes = sum(route.length / route.layers for route in ask.routes) * examples
    return passes * (1 + most_tokens / _SHORT)


@dataclass
class _Answered:
    """What was answered of one kind."""

    size: float = 0.0
    seconds: float = 0.0


@dataclass
class AdaptiveTimeout:
    """The allowance of asks by their size, for each scope apart: another task or way to answer has another speed."""

    least: float
    """Seconds that every ask may take."""
    _answered: dict[str, _Answered] = field(default_factory=dict)

    def learn(self, scope: str, size: float, seconds: float) -> None:
        """An ask of this size was answered after so many seconds."""
        seen = self._answered.setdefault(scope, _Answered())
        seen.size += size
        seen.seconds += seconds

    def seconds(self, scope: str, size: float) -> float:
        """How long an ask of this size may take."""
        seen = self._answered.get(scope)
        if seen is None or not seen.size:
            return self.least * min(max(1.0, size / _USUAL), _UNMEASURED)
        return max(self.least, _SLACK * size * seen.seconds / seen.size)
