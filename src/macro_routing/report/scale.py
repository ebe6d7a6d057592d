"""From values to pixels, and round numbers for axes."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels."""

    first: float
    last: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of ``value``; an empty range is drawn in the middle."""
        if self.first == self.last:
            return (self.start + self.end) / 2
        return self.start + (value - self.first) / (self.last - self.first) * (self.end - self.start)


def round_step(span: float, max_parts: int, min_step: float = 0.0) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides ``span`` into at most ``max_parts`` parts."""
    rough = max(span / max_parts, min_step, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def round_up(value: float) -> float:
    """The next round number."""
    step = round_step(value, 4)
    return step * math.ceil(value / step - 1e-9)


def integer_ticks(first: int, last: int, max_parts: int) -> list[int]:
    """Round integers within the range, its first one included."""
    step = int(round_step(last - first, max_parts, min_step=1))
    return sorted({first, *range(math.ceil(first / step) * step, last + 1, step)})
