"""From values to pixels, and round numbers for axes."""

import math
from collections.abc import Sequence
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


def choose_axis_tick_step(span: float, max_parts: int, min_step: float = 0.0) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides ``span`` into at most ``max_parts`` parts."""
    rough = max(span / max_parts, min_step, 1e-9)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def round_up_to_round_number(value: float) -> float:
    """The next round number."""
    step = choose_axis_tick_step(value, 4)
    return step * math.ceil(value / step - 1e-9)


def list_ticks_within(first: float, last: float, max_parts: int, min_step: float = 0.0) -> list[float]:
    """Round numbers within the range."""
    step = choose_axis_tick_step(last - first, max_parts, min_step)
    return [number * step for number in range(math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9) + 1)]


def list_integer_ticks(first: int, last: int, max_parts: int) -> list[int]:
    """Round integers within the range, its first one included."""
    return sorted({first, *map(round, list_ticks_within(first, last, max_parts, min_step=1))})


def list_nice_axis_ticks(
    values: Sequence[float], max_parts: int, min_span: float, *, beyond: bool = False
) -> list[float]:
    """Round numbers from the lowest value or below it to the highest or above it; ``beyond`` leaves room at a tick."""
    low, high = min(values), max(values)
    step = choose_axis_tick_step(max(high - low, min_span), max_parts)
    tolerance = -1e-9 if beyond else 1e-9
    first = math.floor(low / step + tolerance)
    last = max(math.ceil(high / step - tolerance), first + 1)
    return [number * step for number in range(first, last + 1)]
