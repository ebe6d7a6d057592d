"""The protocol of worker backends: workers in numbered slots, in local processes or on other machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class MessageFromWorker:
    """A complete message of a worker: that it is ready, its results, or a user's error."""

    slot: int
    text: str


@dataclass(frozen=True)
class WorkerHeartbeat:
    """A part of a worker's message arrived: the worker is alive, though the message is not complete."""

    slot: int


@dataclass(frozen=True)
class WorkerExited:
    """A worker exited."""

    slot: int
    reason: str


Event = MessageFromWorker | WorkerHeartbeat | WorkerExited


class WorkerBackend(Protocol):
    """Starts workers, sends them work items and ends them; events belong to the current worker of a slot."""

    def start_worker(self, slot: int) -> None:
        """Start a worker in a slot and end the worker that is there; it reports that it is ready, or exits."""
        ...

    def send_message(self, slot: int, text: str) -> None:
        """Send a message to an idle worker; never blocks."""
        ...

    def wait_for_events(self, seconds: float) -> Sequence[Event]:
        """Return events as soon as there are some, or nothing after this time."""
        ...

    def kill_worker(self, slot: int) -> None:
        """End a slot's worker at once; it causes no more events."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...
