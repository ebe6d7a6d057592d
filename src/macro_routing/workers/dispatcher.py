"""The dispatcher: a queue of work items, one item per worker at a time, timeouts, retries, quarantine.

A worker that exits, hangs or breaks is replaced and its item is run again. An item of several routes that crashed two
workers is run route by route; a route that crashes several more workers is suspected. Before the route is quarantined
the standard pass is run on the same examples: if it crashes its workers as well, the route is not the cause and the run
ends. Prefetch items are tried once and no route is suspected for them. Time comes from the monotonic clock.
"""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from macro_routing import errors
from macro_routing.errors import MacroError, redact_secrets
from macro_routing.evaluation.work_items import EvaluatorSpec, Results, WorkItem
from macro_routing.models.frozen import RemoteModelInfo
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.routes.route import Route
from macro_routing.search.searcher import ScoringFailure
from macro_routing.workers.adaptive_timeout import AdaptiveTimeout, estimate_item_work
from macro_routing.workers.backend import Event, MessageFromWorker, WorkerBackend, WorkerExited, WorkerHeartbeat
from macro_routing.workers.worker_messages import results_from_json, work_item_to_json
from macro_routing.workers.worker_settings import WorkerError, WorkerSettings

_CRASHES_BEFORE_SPLIT = 2
"""Workers that an item of several routes may crash before its routes are run one by one."""
_MAX_WAIT_SECONDS = 60.0
ItemResult = tuple[WorkItem, Results | ScoringFailure]


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
class WorkerEventCounts:
    """What happened to the workers so far; for messages and tests."""

    finished: int = 0
    """Items that were finished."""
    finished_by_slot: dict[int, int] = field(default_factory=dict)
    crashes: int = 0
    hangs: int = 0
    quarantined: dict[RouteOrMixture, str] = field(default_factory=dict)


class Dispatcher:
    """Sends work items to the workers of a backend and returns their results."""

    def __init__(
        self,
        backend: WorkerBackend,
        settings: WorkerSettings,
        report: Callable[[str], None] = lambda _message: None,
    ) -> None:
        """Workers are started by the first run."""
        self._backend = backend
        self._settings = settings
        self._timeout = AdaptiveTimeout(60 * settings.worker_timeout)
        self._report = report
        self.worker_count = settings.workers
        self._slots = [WorkerSlot() for _ in range(settings.workers)]
        self._idle: deque[int] = deque()
        self._queue: deque[QueuedItem] = deque()
        self._events: deque[Event] = deque()
        """Events that are not handled yet: a run that is closed early leaves them to the next run."""
        self._quarantined: dict[tuple[str, RouteOrMixture], str] = {}
        self._spec: EvaluatorSpec
        """Of the latest run."""
        self._has_started = False
        self._fatal_reason = ""
        """Why no worker can be started any more."""
        self._model_facts: RemoteModelInfo | None = None
        self.counts = WorkerEventCounts()

    @property
    def process_ids(self) -> list[int]:
        """Process ids of the workers that are ready."""
        return [slot.process_id for slot in self._slots if slot.is_ready]

    def run_work_items(self, spec: EvaluatorSpec, items: Sequence[WorkItem]) -> Iterator[ItemResult]:
        """Results in the order in which they arrive; see ``WorkItemExecutor.run_work_items``."""
        if not items:
            return
        self._spec = spec
        self._queue = deque(map(QueuedItem, items))
        self._start_all_workers()
        try:
            yield from self._handle_events(0.0)  # a worker that exited since the last run gets no item
            while self._queue or any(slot.queued for slot in self._slots):
                yield from self._assign_queued_items()
                yield from self._handle_events(self._seconds_to_next_deadline())
                yield from self._replace_hanging_workers()
        finally:
            # If the run is closed early, results that still arrive are ignored and not counted.
            self._queue.clear()
            for slot in self._slots:
                slot.queued = None

    def wait_for_model_facts(self) -> RemoteModelInfo:
        """What the first worker that is ready reports about its model."""
        self._start_all_workers()
        while self._model_facts is None:
            self._handle_events_while_idle()
        return self._model_facts

    def wait_until_ready(self) -> None:
        """Wait until every worker that can be started is ready."""
        self._start_all_workers()
        while not all(slot.is_ready or slot.retired for slot in self._slots):
            self._handle_events_while_idle()

    def _handle_events_while_idle(self) -> None:
        """Handle events while no item is queued."""
        list(self._handle_events(self._seconds_to_next_deadline()))
        list(self._replace_hanging_workers())

    # --- sending --------------------------------------------------------------------------------------------------

    def _start_all_workers(self) -> None:
        if self._fatal_reason:
            raise WorkerError(self._fatal_reason)
        if not self._has_started:
            self._has_started = True
            for number in range(len(self._slots)):
                self._start_worker_in_slot(number)

    def _start_worker_in_slot(self, number: int) -> None:
        slot = self._slots[number]
        slot.is_ready = slot.is_busy = False
        slot.queued = None
        slot.sent_at = slot.heard_at = time.monotonic()
        self._events = deque(event for event in self._events if event.slot != number)
        self._backend.start_worker(number)

    def _assign_queued_items(self) -> Iterator[ItemResult]:
        """Send queued items to idle workers."""
        while self._idle and self._queue:
            yield from self._fail_quarantined_routes()
            if not self._queue:
                return
            number, queued = self._idle.popleft(), self._queue.popleft()
            slot = self._slots[number]
            slot.queued, slot.is_busy = queued, True
            slot.sent_at = slot.heard_at = time.monotonic()
            slot.scope = self._spec.scope
            slot.size = estimate_item_work(queued.item, self._spec.decoding.max_new_tokens)
            self._backend.send_message(number, work_item_to_json(self._spec, queued.item))

    def _fail_quarantined_routes(self) -> Iterator[ItemResult]:
        """Fail the quarantined routes of the next items without running them."""
        while self._queue and any(map(self._route_quarantine_reason, self._queue[0].item.routes)):
            queued = self._queue.popleft()
            parts = [
                (part, self._route_quarantine_reason(part.routes[0]))
                for part in queued.item.split_into_single_route_items()
            ]
            left = [QueuedItem(part, queued.crashes, queued.reason) for part, reason in parts if not reason]
            self._queue.extendleft(reversed(left))
            for part, reason in parts:
                if reason:
                    yield part, ScoringFailure(reason)

    def _route_quarantine_reason(self, route: RouteOrMixture) -> str:
        """Why a route is quarantined; empty if it is not."""
        return self._quarantined.get((self._spec.scope, route), "")

    # --- events ---------------------------------------------------------------------------------------------------

    def _handle_events(self, seconds: float) -> Iterator[ItemResult]:
        """Handle pending events, or those that arrive within this time."""
        self._events.extend(self._backend.wait_for_events(0.0 if self._events else seconds))
        while self._events:
            event = self._events.popleft()
            if isinstance(event, WorkerHeartbeat):
                self._slots[event.slot].heard_at = time.monotonic()
            else:
                yield from (
                    self._handle_message(event)
                    if isinstance(event, MessageFromWorker)
                    else self._handle_worker_exit(event)
                )

    def _handle_message(self, event: MessageFromWorker) -> Iterator[ItemResult]:
        slot = self._slots[event.slot]
        message = json.loads(event.text)
        queued, slot.queued = slot.queued, None
        if "error" in message and not slot.is_ready:
            self._backend.kill_worker(event.slot)  # its setup failed; a later run may start another
            self._events.append(WorkerExited(event.slot, message["error"]))
            raise _rebuild_error_from_worker(message)
        slot.process_id = message.get("ready", slot.process_id)
        if "facts" in message:
            self._model_facts = RemoteModelInfo(**message["facts"])
        slot.is_ready, slot.is_busy, slot.failed_starts = True, False, 0
        self._idle.append(event.slot)
        for note in message.get("notes", ()):
            self._report(note)
        if queued is None:
            return
        if "error" in message:
            raise _rebuild_error_from_worker(message)
        self._timeout.record_item_duration(slot.scope, slot.size, time.monotonic() - slot.sent_at)
        if queued.suspect is not None:
            yield self._quarantine_route(queued.suspect)
        else:
            self.counts.finished += 1
            self.counts.finished_by_slot[event.slot] = self.counts.finished_by_slot.get(event.slot, 0) + 1
            yield queued.item, results_from_json(message["results"])

    def _handle_worker_exit(self, event: WorkerExited) -> Iterator[ItemResult]:
        slot = self._slots[event.slot]
        reason = redact_secrets(event.reason)  # it is stored with the route and shown
        if event.slot in self._idle:
            self._idle.remove(event.slot)
        self.counts.crashes += 1
        queued = slot.queued
        if slot.is_ready:
            self._start_worker_in_slot(event.slot)
            self._report(f"a worker exited: {reason}; a new one replaces it")
        else:
            self._handle_failed_start(event.slot, reason)
        if queued is not None:
            yield from self._retry_item(replace(queued, crashes=queued.crashes + 1, reason=reason))

    def _handle_failed_start(self, number: int, reason: str) -> None:
        slot = self._slots[number]
        slot.failed_starts += 1
        if slot.failed_starts < self._settings.attempts:
            self._start_worker_in_slot(number)
            return
        slot.retired = reason
        left = sum(not slot.retired for slot in self._slots)
        if left == 0:
            self._fatal_reason = (
                f"no worker can be started: {reason}; scores so far are stored, fix the cause and resume the run"
            )
            raise WorkerError(self._fatal_reason)
        self._report(f"a worker cannot be started ({reason}); continuing with {left}")

    # --- timeouts -------------------------------------------------------------------------------------------------

    def _replace_hanging_workers(self) -> Iterator[ItemResult]:
        """Replace workers that are past their deadline."""
        now = time.monotonic()
        if not any(self._compute_item_deadline(slot) <= now for slot in self._slots):
            return
        # Messages that arrived while this process was busy are not late.
        yield from self._handle_events(0.0)
        for number, slot in enumerate(self._slots):
            if self._compute_item_deadline(slot) <= now:
                missing = "no answer" if slot.is_busy else "not ready"
                self.counts.hangs += 1
                self._backend.kill_worker(number)
                yield from self._handle_worker_exit(
                    WorkerExited(number, f"{missing} within {self._get_silence_timeout_seconds(slot):.4g} seconds")
                )

    def _get_silence_timeout_seconds(self, slot: WorkerSlot) -> float:
        """Seconds after its start or its item in which a worker must be heard from."""
        return (
            self._timeout.timeout_seconds(slot.scope, slot.size) if slot.is_busy else 60 * self._settings.start_timeout
        )

    def _compute_item_deadline(self, slot: WorkerSlot) -> float:
        """Computed anew every time: the times of items that finished meanwhile count, too."""
        is_expected = (slot.is_busy or not slot.is_ready) and not slot.retired
        return slot.heard_at + self._get_silence_timeout_seconds(slot) if is_expected else math.inf

    def _seconds_to_next_deadline(self) -> float:
        """Seconds until the next deadline; 0 if no message is expected."""
        soonest = min(map(self._compute_item_deadline, self._slots))
        return 0.0 if soonest == math.inf else min(max(0.0, soonest - time.monotonic()), _MAX_WAIT_SECONDS)

    # --- crashes --------------------------------------------------------------------------------------------------

    def _retry_item(self, queued: QueuedItem) -> Iterator[ItemResult]:
        """Run an item again, in smaller parts, or test whether its route causes the crashes."""
        item = queued.item
        if item.prefetch:
            # It is not needed yet, and perhaps never: it is neither repeated nor counted against its routes.
            yield item, ScoringFailure(queued.reason)
        elif len(item.routes) > 1 and queued.crashes >= _CRASHES_BEFORE_SPLIT:
            parts = item.split_into_single_route_items()
            self._queue.extendleft(QueuedItem(part, reason=queued.reason) for part in reversed(parts))
        elif len(item.routes) > 1 or queued.crashes < self._settings.attempts:
            self._queue.appendleft(queued)
        elif item.routes[0].is_standard:
            raise WorkerError(
                f"the standard pass crashes its workers: {queued.reason}; scores so far are stored, fix the cause"
                " (workers that are only slow need a longer --worker-timeout) and resume the run"
            )
        else:
            standard = replace(item, routes=(Route.standard(item.routes[0].layers),))
            self._queue.appendleft(QueuedItem(standard, suspect=queued))

    def _quarantine_route(self, queued: QueuedItem) -> tuple[WorkItem, ScoringFailure]:
        """Give up a route that crashes its workers while the standard pass does not."""
        (route,) = queued.item.routes
        reason = f"crashed its worker {queued.crashes} times: {queued.reason}"
        self._quarantined[self._spec.scope, route] = self.counts.quarantined[route] = reason
        self._report(f"the route {route} is given up: it {reason}")
        return queued.item, ScoringFailure(reason)


def _rebuild_error_from_worker(message: dict[str, str]) -> MacroError:
    """The error that a worker reported, with its original class."""
    kind = getattr(errors, message["class"], MacroError)
    is_macro_error = isinstance(kind, type) and issubclass(kind, MacroError)
    return (kind if is_macro_error else MacroError)(message["error"])
