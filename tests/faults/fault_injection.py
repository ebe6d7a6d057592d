"""Who does something to a run while it goes on, and what is seen of the run afterwards."""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from macro_routing.runs import Listener
from macro_routing.workers.worker_pool import WorkerPool

_START_PAUSE = 1.0
"""Given to workers that are not ready yet; much shorter than a deadline."""


@dataclass(frozen=True)
class FaultResult:
    """How a disturbed run ended."""

    happened: bool
    """Whether the fault was really done to it: a run that nothing happened to shows nothing."""
    same: bool
    """Whether everything it decided is what the undisturbed run decided."""
    lost: int | None
    """Outcomes of the undisturbed run that its store lacks; None where that cannot be told."""
    twice: int | None
    """Routes on a unit that were answered and counted though they were known."""
    workers_lost: int | None = None
    note: str = ""

    @property
    def sound(self) -> bool:
        """The fault was there, and nothing was lost, nothing twice, the same end."""
        return self.happened and self.same and not self.lost and not self.twice


class FaultInjector(Listener):
    """Does something to the workers after so many reports of outcomes: between two answers, while others work.

    ``inject`` says whether it could be done; one that could not is tried again at the next report.
    """

    def __init__(self, moments: set[int], inject: Callable[[WorkerPool], bool]) -> None:
        """``moments`` are numbers of reports."""
        self.pool: WorkerPool | None = None
        self._reports, self._moments, self._inject = 0, moments, inject
        self._due = 0

    def on_outcomes(self, count: int) -> None:  # noqa: ARG002
        """Is it time?"""
        self._reports += 1
        self._due += self._reports in self._moments
        if self._due and self.pool is not None:
            if self._inject(self.pool):
                self._due -= 1
            else:
                time.sleep(_START_PAUSE)


class WorkerKiller:
    """SIGKILL to so many workers, never twice to the same, and only when all of that number are ready."""

    def __init__(self, rng: random.Random, count: int) -> None:
        """``count`` workers at a time."""
        self.killed: set[int] = set()
        self._rng, self._count = rng, count

    def __call__(self, pool: WorkerPool) -> bool:
        """Whether they were killed."""
        ready = sorted(set(pool.process_ids) - self.killed)
        if len(ready) < self._count:
            return False
        for number in self._rng.sample(ready, self._count):
            os.kill(number, signal.SIGKILL)
            self.killed.add(number)
        return True
