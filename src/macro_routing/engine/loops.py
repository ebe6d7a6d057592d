"""Text that repeats itself: a row of tokens that has entered an exact loop will not say anything new."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_PERIOD = 64
LEAST_REPEATS = 4
LEAST_TOKENS = 48
"""A loop is believed when its last tokens, at least this many, are at least so many repeats of one period."""


def period_of(tokens: Sequence[int]) -> int | None:
    """The shortest period of the loop in which ``tokens`` end; None when they do not end in one."""
    size = len(tokens)
    for period in range(1, min(LONGEST_PERIOD, size // LEAST_REPEATS) + 1):
        span = max(LEAST_REPEATS * period, LEAST_TOKENS)
        if span > size:
            return None  # longer periods need more tokens still
        if tokens[size - 1] != tokens[size - 1 - period]:
            continue  # nearly all end here: rows by the thousand are looked at, and slices take long
        tail = tokens[size - span :]
        if tail[period:] == tail[:-period]:
            return period
    return None


def continued(tokens: Sequence[int], period: int, length: int) -> tuple[int, ...]:
    """The loop carried on to ``length`` tokens."""
    found = list(tokens)
    while len(found) < length:
        found.append(found[-period])
    return tuple(found[:length])
