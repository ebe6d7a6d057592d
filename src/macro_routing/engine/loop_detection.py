"""Detection of generated text that repeats itself exactly."""

from collections.abc import Sequence

MAX_PERIOD = 64
MIN_REPEATS = 4
MIN_LOOP_TOKENS = 48
"""A loop has at least ``MIN_REPEATS`` repeats of one period and at least ``MIN_LOOP_TOKENS`` tokens."""


def find_loop_period(tokens: Sequence[int]) -> int | None:
    """The shortest period of the loop at the end of ``tokens``; None if they do not end in a loop."""
    size = len(tokens)
    for period in range(1, min(MAX_PERIOD, size // MIN_REPEATS) + 1):
        span = max(MIN_REPEATS * period, MIN_LOOP_TOKENS)
        if span > size:
            return None  # longer periods need even more tokens
        if tokens[size - 1] != tokens[size - 1 - period]:
            continue  # a cheap check first: slices are slow, and there are thousands of rows
        tail = tokens[size - span :]
        if tail[period:] == tail[:-period]:
            return period
    return None


def extend_loop(tokens: Sequence[int], period: int, length: int) -> tuple[int, ...]:
    """``tokens`` with their last ``period`` tokens repeated up to ``length``."""
    extended = list(tokens)
    while len(extended) < length:
        extended.append(extended[-period])
    return tuple(extended[:length])
