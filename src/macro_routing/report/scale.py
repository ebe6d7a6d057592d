"""From values to places in a drawing, and round numbers for its axes."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A straight map from values to pixels."""

    first: float
    last: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Where ``value`` lies; a range without extent lies in the middle."""
        if self.first == self.last:
            return (self.start + self.end) / 2
        return self.start + (value - self.first) / (self.last - self.first) * (self.end - self.start)


def round_step(span: float, most: int, least: float = 0.0) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts ``span`` into at most ``most`` parts."""
    rough = max(span / most, least, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def ticks(first: int, last: int, most: int) -> list[int]:
    """Whole round numbers within the range, its first one included."""
    step = int(round_step(last - first, most, least=1))
    return sorted({first, *range(math.ceil(first / step) * step, last + 1, step)})
