"""The driver: a queue of asks, one outstanding ask per worker, deadlines, retries, quarantine.

A worker that dies, hangs or breaks is replaced and its ask is asked again. An ask of several routes that has taken down
two workers is asked route by route; a route that takes down so many more is suspected. Before it is given up the
standard pass is asked the same: where that does not survive either, the fault is not the route's and the run ends.
What is only worked ahead is tried once and blamed on nobody. Time is measured by a clock that cannot be set.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from macro_routing import errors
from macro_routing.errors import MacroError, without_secrets
from macro_routing.evaluation.executor import Results, WorkItem
from macro_routing.models.remote import RemoteModelInfo
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Failure
from macro_routing.workers.adaptive_timeout import AdaptiveTimeout, estimate_work
from macro_routing.workers.backend import Event, Exited, Heartbeat, Message, WorkerBackend
from macro_routing.workers.dispatch_state import DispatchCounts, DispatchLimits, QueuedItem, WorkerSlot
from macro_routing.workers.messages import Assignment, results_from_json, work_item_to_json
from macro_routing.workers.settings import WorkerError

_TOGETHER = 2
"""Workers that an ask of several routes may take down before its routes are asked one by one."""
_LONGEST_WAIT = 60.0


class Dispatcher:
    """Gives asks to the workers of a crew and brings their answers back."""

    def __init__(
        self,
        crew: WorkerBackend,
        slots: int,
        limits: DispatchLimits,
        report: Callable[[str], None] = lambda _message: None,
    ) -> None:
        """Workers are started at the first run."""
        self._crew = crew
        self._limits = limits
        self._patience = AdaptiveTimeout(limits.unit_seconds)
        self._report = report
        self._slots = [WorkerSlot() for _ in range(slots)]
        self._idle: deque[int] = deque()
        self._queue: deque[QueuedItem] = deque()
        self._events: deque[Event] = deque()
        """What happened and was not dealt with yet: whoever stops listening leaves the rest to the next run."""
        self._quarantine: dict[tuple[str, Route], str] = {}
        self._assignment: Assignment | None = None
        self._has_started = False
        self._fatal_reason = ""
        """Why there is no worker any more, and will be none."""
        self._facts: RemoteModelInfo | None = None
        self.counts = DispatchCounts()

    @property
    def processes(self) -> list[int]:
        """Process numbers of the workers that are ready."""
        return [slot.process for slot in self._slots if slot.is_ready]

    def run(self, assignment: Assignment, asks: Sequence[WorkItem]) -> Iterator[tuple[WorkItem, Results | Failure]]:
        """Results as they come; see ``Executor.run``."""
        self._assignment = assignment
        self._queue = deque(map(QueuedItem, asks))
        self._start_all()
        try:
            yield from self._hear(0.0)  # a worker that was lost since the last run is not to be asked
            while self._queue or any(slot.work for slot in self._slots):
                yield from self._fill()
                yield from self._hear(self._longest_wait())
                yield from self._overdue()
        finally:
            # Whoever stopped listening: answers that still come are not waited for, and not counted.
            self._queue.clear()
            for slot in self._slots:
                slot.work = None

    def facts(self) -> RemoteModelInfo:
        """What the first worker that is ready says of its model."""
        self._start_all()
        while self._facts is None:
            self._listen()
        return self._facts

    def wait_for_all(self) -> None:
        """Until every worker is ready that can be started at all."""
        self._start_all()
        while not all(slot.is_ready or slot.retired for slot in self._slots):
            self._listen()

    def _listen(self) -> None:
        """Hear what happens while nothing is asked."""
        list(self._hear(self._longest_wait()))
        list(self._overdue())

    # --- asking ---------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        if self._fatal_reason:
            raise WorkerError(self._fatal_reason)
        if not self._has_started:
            self._has_started = True
            for number in range(len(self._slots)):
                self._start(number)

    def _start(self, number: int) -> None:
        slot = self._slots[number]
        slot.is_ready = slot.is_busy = False
        slot.work = None
        slot.asked = slot.heard = time.monotonic()
        self._events = deque(event for event in self._events if event.slot != number)
        self._crew.start(number)

    def _fill(self) -> Iterator[tuple[WorkItem, Results | Failure]]:
        assert self._assignment is not None
        while self._idle and self._queue:
            yield from self._drop_quarantined()
            if not self._queue:
                return
            number, work = self._idle.popleft(), self._queue.popleft()
            slot = self._slots[number]
            slot.work, slot.is_busy = work, True
            slot.asked = slot.heard = time.monotonic()
            slot.scope, slot.size = self._assignment.scope, estimate_work(work.ask, self._assignment.most_tokens)
            self._crew.give(number, work_item_to_json(self._assignment, work.ask))

    def _drop_quarantined(self) -> Iterator[tuple[WorkItem, Failure]]:
        """Routes that were given up are not tried on the next units."""
        while self._queue and any(self._key(route) in self._quarantine for route in self._queue[0].ask.routes):
            work = self._queue.popleft()
            parts = [(part, self._quarantine.get(self._key(part.routes[0]))) for part in work.ask.one_by_one()]
            left = [QueuedItem(part, work.deaths, work.reason) for part, reason in parts if reason is None]
            self._queue.extendleft(reversed(left))
            for part, reason in parts:
                if reason is not None:
                    yield part, Failure(reason)

    def _key(self, route: Route) -> tuple[str, Route]:
        assert self._assignment is not None
        return self._assignment.scope, route

    # --- hearing --------------------------------------------------------------------------------------------------

    def _hear(self, seconds: float) -> Iterator[tuple[WorkItem, Results | Failure]]:
        """Deal with what has happened, or happens within so many seconds."""
        self._events.extend(self._crew.wait(0.0 if self._events else seconds))
        while self._events:
            event = self._events.popleft()
            if isinstance(event, Heartbeat):
                self._slots[event.slot].heard = time.monotonic()
            else:
                yield from self._said(event) if isinstance(event, Message) else self._gone(event)

    def _said(self, event: Message) -> Iterator[tuple[WorkItem, Results | Failure]]:
        slot = self._slots[event.slot]
        message = json.loads(event.text)
        work, slot.work = slot.work, None
        if "error" in message and not slot.is_ready:
            self._crew.kill(event.slot)  # it has nothing to work with; a later run may try another
            self._events.append(Exited(event.slot, message["error"]))
            raise _as_user_error(message)
        slot.process = message.get("ready", slot.process)
        if "facts" in message:
            self._facts = RemoteModelInfo(**message["facts"])
        slot.is_ready, slot.is_busy, slot.failed_starts = True, False, 0
        self._idle.append(event.slot)
        for note in message.get("notes", ()):
            self._report(note)
        if work is None:
            return
        if "error" in message:
            raise _as_user_error(message)
        self._patience.learn(slot.scope, slot.size, time.monotonic() - slot.asked)
        if work.suspect is not None:
            yield from self._quarantine_route(work.suspect)
        else:
            self.counts.answered += 1
            self.counts.by_slot[event.slot] = self.counts.by_slot.get(event.slot, 0) + 1
            yield work.ask, results_from_json(message["answers"])

    def _gone(self, event: Exited) -> Iterator[tuple[WorkItem, Results | Failure]]:
        slot = self._slots[event.slot]
        event = replace(event, reason=without_secrets(event.reason))  # it is kept with the route, and shown
        if event.slot in self._idle:
            self._idle.remove(event.slot)
        self.counts.deaths += 1
        work = slot.work
        if slot.is_ready:
            self._start(event.slot)
            self._report(f"a worker was lost: {event.reason}; another takes its place")
        else:
            self._start_failed(event.slot, event.reason)
        if work is not None:
            yield from self._again(replace(work, deaths=work.deaths + 1, reason=event.reason))

    def _start_failed(self, number: int, reason: str) -> None:
        slot = self._slots[number]
        slot.failed_starts += 1
        if slot.failed_starts < self._limits.attempts:
            self._start(number)
            return
        slot.retired = reason
        left = sum(not one.retired for one in self._slots)
        if left == 0:
            self._fatal_reason = (
                f"no worker can be started: {reason}; what was scored is kept, mend it and resume the run"
            )
            raise WorkerError(self._fatal_reason)
        self._report(f"a worker cannot be started ({reason}); going on with {left}")

    def _overdue(self) -> Iterator[tuple[WorkItem, Results | Failure]]:
        """Replace workers that have taken too long."""
        now = time.monotonic()
        if not any(self._deadline(slot) <= now for slot in self._slots):
            return
        # What came while this process was busy with other things is not late.
        yield from self._hear(0.0)
        for number, slot in enumerate(self._slots):
            if self._deadline(slot) <= now:
                what = "answer" if slot.is_busy else "sign of being ready"
                reason = f"no {what} within {self._allowed(slot):.4g} seconds"
                self.counts.hangs += 1
                self._crew.kill(number)
                yield from self._gone(Exited(number, reason))

    def _allowed(self, slot: WorkerSlot) -> float:
        """Seconds from its start or its ask in which a worker must be heard of."""
        return self._patience.seconds(slot.scope, slot.size) if slot.is_busy else self._limits.start_seconds

    def _deadline(self, slot: WorkerSlot) -> float:
        """Worked out anew every time: what others have taken by now counts, too."""
        is_awaited = (slot.is_busy or not slot.is_ready) and not slot.retired
        return slot.heard + self._allowed(slot) if is_awaited else math.inf

    def _longest_wait(self) -> float:
        """Seconds until the next deadline; none where nobody is awaited."""
        soonest = min(map(self._deadline, self._slots))
        return 0.0 if soonest == math.inf else min(max(0.0, soonest - time.monotonic()), _LONGEST_WAIT)

    # --- blame ----------------------------------------------------------------------------------------------------

    def _again(self, work: QueuedItem) -> Iterator[tuple[WorkItem, Results | Failure]]:
        """Try once more, in smaller parts, or find out who is to blame."""
        if work.ask.ahead:
            # Nobody needs it yet, and perhaps nobody will: it is neither repeated nor held against its routes.
            yield work.ask, Failure(work.reason)
            return
        if len(work.ask.routes) > 1:
            parts = [work.ask] if work.deaths < _TOGETHER else work.ask.one_by_one()
            deaths = work.deaths if work.deaths < _TOGETHER else 0
            self._queue.extendleft(QueuedItem(part, deaths, work.reason) for part in reversed(parts))
            return
        if work.deaths < self._limits.attempts:
            self._queue.appendleft(work)
        elif work.ask.routes[0].is_standard:
            raise WorkerError(
                f"the standard pass takes its workers down: {work.reason}; what was scored is kept, mend it (workers"
                " that are only slow need more --worker-timeout) and resume the run"
            )
        else:
            standard = replace(work.ask, routes=(Route.standard(work.ask.routes[0].layers),))
            self._queue.appendleft(QueuedItem(standard, suspect=work))
        yield from ()

    def _quarantine_route(self, work: QueuedItem) -> Iterator[tuple[WorkItem, Failure]]:
        (route,) = work.ask.routes
        reason = f"took down its worker {work.deaths} times: {work.reason}"
        self._quarantine[self._key(route)] = self.counts.quarantined[route] = reason
        self._report(f"the route {route} is given up: it {reason}")
        yield work.ask, Failure(reason)


def _as_user_error(message: dict[str, str]) -> MacroError:
    """The error that a worker met, of the class it had there."""
    kind = getattr(errors, message["class"], MacroError)
    is_ours = isinstance(kind, type) and issubclass(kind, MacroError)
    return (kind if is_ours else MacroError)(message["error"])
