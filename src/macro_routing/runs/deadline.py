"""Stopping in time: a search that may take so many minutes leaves enough of them to select and test."""

import time


class TimeUp(Exception):  # noqa: N818 it is no error
    """The time for searching is over."""


class Deadline:
    """Watches the clock while outcomes come in."""

    def __init__(self, minutes: float | None, left_over: int) -> None:
        """``left_over`` outcomes will be needed after the search."""
        self._start = time.monotonic()
        self._seconds = None if minutes is None else 60 * minutes
        self._left_over = left_over
        self._done = 0

    def check(self, outcomes: int) -> None:
        """Count outcomes just worked out; raise ``TimeUp`` when the rest of the time is needed for the end."""
        self._done += outcomes
        if self._seconds is None or self._done == 0:
            return
        elapsed = time.monotonic() - self._start
        needed = elapsed / self._done * self._left_over
        if elapsed + needed > self._seconds:
            raise TimeUp
