"""What the driver keeps in mind: asks on their way, its workers by their slots, its limits, what happened so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from macro_routing.evaluation.executor import WorkItem
from macro_routing.routes.route import Route


@dataclass(frozen=True)
class DispatchLimits:
    """How patient a driver is."""

    unit_seconds: float = 1800.0
    """For an ask of usual size; larger ones have longer, see ``patience``."""
    start_seconds: float = 1800.0
    attempts: int = 3


@dataclass(frozen=True)
class QueuedItem:
    """An ask on its way."""

    ask: WorkItem
    deaths: int = 0
    reason: str = ""
    suspect: QueuedItem | None = None
    """Set where the ask is the standard pass, asked to find out whether this one is to blame."""


@dataclass
class WorkerSlot:
    """A worker as the driver knows it."""

    is_ready: bool = False
    process: int = 0
    """The worker's process number, on whatever machine it is."""
    is_busy: bool = False
    """Also when nobody waits for the answer any more."""
    work: QueuedItem | None = None
    asked: float = 0.0
    """When it was asked, or started."""
    heard: float = 0.0
    """When it was last heard to be answering; not before it was asked."""
    scope: str = ""
    size: float = 0.0
    """Of what it was asked; these two stay when nobody waits for the answer any more."""
    failed_starts: int = 0
    retired: str = ""
    """Why no worker is put into this slot any more."""


@dataclass
class DispatchCounts:
    """What happened to workers so far; for messages and tests."""

    answered: int = 0
    by_slot: dict[int, int] = field(default_factory=dict)
    """The same by worker, those before a present one counted in."""
    deaths: int = 0
    hangs: int = 0
    quarantined: dict[Route, str] = field(default_factory=dict)
