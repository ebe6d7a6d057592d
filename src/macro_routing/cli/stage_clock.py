"""How far a stage of a run is, and how long the rest takes at the speed so far."""

import time


class StageClock:
    """Counts a stage's evaluations; those that were saved count as done, as they will among the rest."""

    def __init__(self, total: int = 0) -> None:
        """A stage of at most ``total`` evaluations begins."""
        self.total = total
        self.done = 0
        self._started = self._updated = time.monotonic()

    def advance_to(self, done: int) -> None:
        """So many evaluations are done."""
        self.done = min(max(done, self.done), self.total)
        self._updated = time.monotonic()

    @property
    def estimate(self) -> float:
        """Evaluations done by now: they are reported many at once, and the work goes on in between."""
        elapsed = self._updated - self._started
        rate = self.done / elapsed if elapsed > 0 else 0.0
        return min(self.done + rate * (time.monotonic() - self._updated), (self.done + self.total) / 2)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest takes; None before anything is known."""
        if not self.done:
            return None
        whole = (self._updated - self._started) * self.total / self.done
        return max(0.0, self._started + whole - time.monotonic())

    def describe_time_left(self) -> str:
        """As a person would say it; empty before anything is known."""
        left = self.seconds_left
        if left is None:
            return ""
        return f"{left:.0f} s" if left < 100 else f"{left / 60:.1f} min"
