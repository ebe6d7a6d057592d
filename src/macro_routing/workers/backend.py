"""A crew: workers in numbered slots, wherever they are; what a backend must be able to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Message:
    """A worker's message: that it is ready, an answer, or an error of the user's."""

    slot: int
    text: str


@dataclass(frozen=True)
class Heartbeat:
    """A part of a worker's message has come: it is not silent, though the rest is still on its way."""

    slot: int


@dataclass(frozen=True)
class Exited:
    """A worker is no more."""

    slot: int
    reason: str


Event = Message | Heartbeat | Exited


class WorkerBackend(Protocol):
    """Starts, asks and ends workers. Events are of a slot's present worker, never of an earlier one."""

    def start(self, slot: int) -> None:
        """Put a new worker into a slot, in place of what may be there; it says when it is ready, or is gone."""
        ...

    def give(self, slot: int, text: str) -> None:
        """Send a job to a worker that is idle; never blocks."""
        ...

    def wait(self, seconds: float) -> Sequence[Event]:
        """What happened, as soon as something has, or nothing after so many seconds."""
        ...

    def kill(self, slot: int) -> None:
        """End a slot's worker at once; nothing is heard of it any more."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...
