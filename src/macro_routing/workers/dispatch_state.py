"""The state of the dispatcher: queued work items, workers by slot, limits, counts."""

from dataclasses import dataclass, field

from macro_routing.evaluation.work_items import WorkItem
from macro_routing.routes.route import Route


@dataclass(frozen=True)
class DispatchLimits:
    """Timeouts and retries."""

    item_seconds: float = 1800.0
    """Timeout of an item of usual size; larger ones have longer, see ``adaptive_timeout``."""
    start_seconds: float = 1800.0
    attempts: int = 3


@dataclass(frozen=True)
class QueuedItem:
    """A work item in the queue or at a worker."""

    item: WorkItem
    crashes: int = 0
    """Workers that exited or hung while running it."""
    reason: str = ""
    suspect: "QueuedItem | None" = None
    """Set if the item is the standard pass, run to find out whether the suspect's route causes the crashes."""


@dataclass
class WorkerSlot:
    """A worker as the dispatcher sees it."""

    is_ready: bool = False
    process_id: int = 0
    """The worker's process id on its machine."""
    is_busy: bool = False
    """Also true if nobody waits for the result any more."""
    queued: QueuedItem | None = None
    sent_at: float = 0.0
    """When it was started or got its item."""
    heard_at: float = 0.0
    """When its last message or heartbeat arrived; not before ``sent_at``."""
    scope: str = ""
    size: float = 0.0
    """Scope and size of its item; these stay if nobody waits for the result any more."""
    failed_starts: int = 0
    retired: str = ""
    """Why no worker is started in this slot any more."""


@dataclass
class DispatchCounts:
    """What happened to the workers so far; for messages and tests."""

    finished: int = 0
    """Items that were finished."""
    finished_by_slot: dict[int, int] = field(default_factory=dict)
    crashes: int = 0
    hangs: int = 0
    quarantined: dict[Route, str] = field(default_factory=dict)
