"""The driver: a queue of asks, one outstanding ask per worker, deadlines, retries, quarantine.

A worker that dies, hangs or breaks is replaced and its ask is asked again. An ask of several routes that has taken down
two workers is asked route by route; a route that takes down so many more is suspected. Before it is given up the
standard pass is asked the same: where that does not survive either, the fault is not the route's and the run ends.
Time is measured by a clock that cannot be set.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from macro_routing import errors
from macro_routing.errors import MacroError, without_secrets
from macro_routing.evaluation.executor import Answers, Ask
from macro_routing.models.elsewhere import ModelFacts
from macro_routing.routes.route import Route
from macro_routing.search.searcher import Failure
from macro_routing.workers.crew import Crew, Event, Gone, Said
from macro_routing.workers.messages import Assignment, answers_from_json, ask_to_text
from macro_routing.workers.settings import WorkerError

_TOGETHER = 2
"""Workers that an ask of several routes may take down before its routes are asked one by one."""
_LONGEST_WAIT = 60.0


@dataclass(frozen=True)
class Limits:
    """How patient a driver is."""

    unit_seconds: float = 1800.0
    start_seconds: float = 1800.0
    attempts: int = 3


@dataclass(frozen=True)
class _Work:
    """An ask on its way."""

    ask: Ask
    deaths: int = 0
    reason: str = ""
    suspect: _Work | None = None
    """Set where the ask is the standard pass, asked to find out whether this one is to blame."""


@dataclass
class _Slot:
    """A worker as the driver knows it."""

    is_ready: bool = False
    process: int = 0
    """The worker's process number, on whatever machine it is."""
    is_busy: bool = False
    """Also when nobody waits for the answer any more."""
    work: _Work | None = None
    deadline: float = 0.0
    failed_starts: int = 0
    retired: str = ""
    """Why no worker is put into this slot any more."""


@dataclass
class Counts:
    """What happened to workers so far; for messages and tests."""

    answered: int = 0
    deaths: int = 0
    hangs: int = 0
    quarantined: dict[Route, str] = field(default_factory=dict)


class Dispatcher:
    """Gives asks to the workers of a crew and brings their answers back."""

    def __init__(
        self, crew: Crew, slots: int, limits: Limits, report: Callable[[str], None] = lambda _message: None
    ) -> None:
        """Workers are started at the first run."""
        self._crew = crew
        self._limits = limits
        self._report = report
        self._slots = [_Slot() for _ in range(slots)]
        self._idle: deque[int] = deque()
        self._queue: deque[_Work] = deque()
        self._events: deque[Event] = deque()
        """What happened and was not dealt with yet: whoever stops listening leaves the rest to the next run."""
        self._quarantine: dict[tuple[str, Route], str] = {}
        self._assignment: Assignment | None = None
        self._has_started = False
        self._hopeless = ""
        """Why there is no worker any more, and will be none."""
        self._facts: ModelFacts | None = None
        self.counts = Counts()

    @property
    def processes(self) -> list[int]:
        """Process numbers of the workers that are ready."""
        return [slot.process for slot in self._slots if slot.is_ready]

    def run(self, assignment: Assignment, asks: Sequence[Ask]) -> Iterator[tuple[Ask, Answers | Failure]]:
        """Answers as they come; see ``Executor.run``."""
        self._assignment = assignment
        self._queue = deque(map(_Work, asks))
        self._start_all()
        try:
            yield from self._hear(0.0)  # a worker that was lost since the last run is not to be asked
            while self._queue or any(slot.work for slot in self._slots):
                yield from self._fill()
                yield from self._hear(self._patience())
                yield from self._overdue()
        finally:
            # Whoever stopped listening: answers that still come are not waited for, and not counted.
            self._queue.clear()
            for slot in self._slots:
                slot.work = None

    def facts(self) -> ModelFacts:
        """What the first worker that is ready says of its model."""
        self._start_all()
        while self._facts is None:
            list(self._hear(self._patience()))
            list(self._overdue())
        return self._facts

    # --- asking ---------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        if self._hopeless:
            raise WorkerError(self._hopeless)
        if not self._has_started:
            self._has_started = True
            for number in range(len(self._slots)):
                self._start(number)

    def _start(self, number: int) -> None:
        slot = self._slots[number]
        slot.is_ready = slot.is_busy = False
        slot.work = None
        slot.deadline = time.monotonic() + self._limits.start_seconds
        self._events = deque(event for event in self._events if event.slot != number)
        self._crew.start(number)

    def _fill(self) -> Iterator[tuple[Ask, Answers | Failure]]:
        assert self._assignment is not None
        while self._idle and self._queue:
            yield from self._drop_quarantined()
            if not self._queue:
                return
            number, work = self._idle.popleft(), self._queue.popleft()
            slot = self._slots[number]
            slot.work, slot.is_busy = work, True
            slot.deadline = time.monotonic() + self._limits.unit_seconds
            self._crew.give(number, ask_to_text(self._assignment, work.ask))

    def _drop_quarantined(self) -> Iterator[tuple[Ask, Failure]]:
        """Routes that were given up are not tried on the next units."""
        while self._queue and any(self._key(route) in self._quarantine for route in self._queue[0].ask.routes):
            work = self._queue.popleft()
            parts = [(part, self._quarantine.get(self._key(part.routes[0]))) for part in work.ask.one_by_one()]
            left = [_Work(part, work.deaths, work.reason) for part, reason in parts if reason is None]
            self._queue.extendleft(reversed(left))
            for part, reason in parts:
                if reason is not None:
                    yield part, Failure(reason)

    def _key(self, route: Route) -> tuple[str, Route]:
        assert self._assignment is not None
        return self._assignment.scope, route

    # --- hearing --------------------------------------------------------------------------------------------------

    def _hear(self, seconds: float) -> Iterator[tuple[Ask, Answers | Failure]]:
        """Deal with what has happened, or happens within so many seconds."""
        self._events.extend(self._crew.wait(0.0 if self._events else seconds))
        while self._events:
            event = self._events.popleft()
            yield from self._said(event) if isinstance(event, Said) else self._gone(event)

    def _said(self, event: Said) -> Iterator[tuple[Ask, Answers | Failure]]:
        slot = self._slots[event.slot]
        message = json.loads(event.text)
        work, slot.work = slot.work, None
        if "error" in message and not slot.is_ready:
            self._crew.kill(event.slot)  # it has nothing to work with; a later run may try another
            self._events.append(Gone(event.slot, message["error"]))
            raise _users(message)
        slot.process = message.get("ready", slot.process)
        if "facts" in message:
            self._facts = ModelFacts(**message["facts"])
        slot.is_ready, slot.is_busy, slot.failed_starts = True, False, 0
        self._idle.append(event.slot)
        for note in message.get("notes", ()):
            self._report(note)
        if work is None:
            return
        if "error" in message:
            raise _users(message)
        if work.suspect is not None:
            yield from self._convict(work.suspect)
        else:
            self.counts.answered += 1
            yield work.ask, answers_from_json(message["answers"])

    def _gone(self, event: Gone) -> Iterator[tuple[Ask, Answers | Failure]]:
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
        slot.retired, slot.deadline = reason, float("inf")
        left = sum(not one.retired for one in self._slots)
        if left == 0:
            self._hopeless = f"no worker can be started: {reason}; what was scored is kept, mend it and resume the run"
            raise WorkerError(self._hopeless)
        self._report(f"a worker cannot be started ({reason}); going on with {left}")

    def _overdue(self) -> Iterator[tuple[Ask, Answers | Failure]]:
        now = time.monotonic()
        for number, slot in enumerate(self._slots):
            if (slot.is_busy or not slot.is_ready) and not slot.retired and slot.deadline <= now:
                seconds = self._limits.unit_seconds if slot.is_busy else self._limits.start_seconds
                what = "answer" if slot.is_busy else "sign of being ready"
                self.counts.hangs += 1
                self._crew.kill(number)
                yield from self._gone(Gone(number, f"no {what} within {seconds:g} seconds"))

    def _patience(self) -> float:
        """Seconds until the next deadline."""
        waiting = [slot.deadline for slot in self._slots if slot.is_busy or not slot.is_ready]
        return min(max(0.0, min(waiting, default=0.0) - time.monotonic()), _LONGEST_WAIT)

    # --- blame ----------------------------------------------------------------------------------------------------

    def _again(self, work: _Work) -> Iterator[tuple[Ask, Answers | Failure]]:
        """Ask once more, in smaller parts, or find out who is to blame."""
        if len(work.ask.routes) > 1:
            parts = [work.ask] if work.deaths < _TOGETHER else work.ask.one_by_one()
            deaths = work.deaths if work.deaths < _TOGETHER else 0
            self._queue.extendleft(_Work(part, deaths, work.reason) for part in reversed(parts))
            return
        if work.deaths < self._limits.attempts:
            self._queue.appendleft(work)
        elif work.ask.routes[0].is_standard:
            raise WorkerError(
                f"the standard pass takes its workers down: {work.reason};"
                " what was scored is kept, mend it and resume the run"
            )
        else:
            standard = replace(work.ask, routes=(Route.standard(work.ask.routes[0].layers),))
            self._queue.appendleft(_Work(standard, suspect=work))
        yield from ()

    def _convict(self, work: _Work) -> Iterator[tuple[Ask, Failure]]:
        (route,) = work.ask.routes
        reason = f"took down its worker {work.deaths} times: {work.reason}"
        self._quarantine[self._key(route)] = self.counts.quarantined[route] = reason
        self._report(f"the route {route} is given up: it {reason}")
        yield work.ask, Failure(reason)


def _users(message: dict[str, str]) -> MacroError:
    """The error that a worker met, of the class it had there."""
    kind = getattr(errors, message["class"], MacroError)
    is_ours = isinstance(kind, type) and issubclass(kind, MacroError)
    return (kind if is_ours else MacroError)(message["error"])
