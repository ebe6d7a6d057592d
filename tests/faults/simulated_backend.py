"""Workers that are played: they answer by a table, at once or after a time that a played clock counts.

The driver, the racing, the store and the messages are the real ones; only the model is not there.
"""

import hashlib
import heapq
import json
import time
from collections.abc import Callable, Sequence

from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.work_items import WorkItem
from macro_routing.routes import Route
from macro_routing.tasks import Example
from macro_routing.workers.backend import Event, MessageFromWorker
from macro_routing.workers.worker_messages import encode_worker_results, work_item_from_json


def outcome_from_table(route: Route, example: Example) -> ExampleOutcome:
    """Right or wrong by a digest: every route has a rate of its own, every example is another throw."""
    rate = hashlib.sha256(str(route).encode()).digest()[0] / 255
    throw = hashlib.sha256(f"{route}/{example.id}".encode()).digest()[0] / 255
    return ExampleOutcome(correct=throw < rate, prediction="A")


class SimulatedBackend:
    """Workers without a process each."""

    def __init__(self, seconds: Callable[[WorkItem], float] = lambda _ask: 0.0) -> None:
        """``seconds`` is how long a worker takes over an ask, by the played clock."""
        self._seconds = seconds
        self._events: list[tuple[float, int, int, str]] = []
        self._number = 0
        self.clock = 0.0
        self.busy = 0.0
        """Seconds of all workers together."""
        self.simulation_seconds = 0.0
        """Real seconds spent on the simulation."""

    def _schedule(self, slot: int, seconds: float, text: str) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.clock + seconds, self._number, slot, text))

    def start_worker(self, slot: int) -> None:
        """Ready at once."""
        self._schedule(slot, 0.0, json.dumps({"ready": 0}))

    def send_message(self, slot: int, text: str) -> None:
        """Answered by the table."""
        begun = time.perf_counter()
        _, ask = work_item_from_json(text)
        answers = tuple(tuple(outcome_from_table(route, one) for one in ask.unit) for route in ask.routes)
        seconds = self._seconds(ask)
        self.busy += seconds
        self._schedule(slot, seconds, json.dumps({"results": encode_worker_results(answers), "notes": []}))
        self.simulation_seconds += time.perf_counter() - begun

    def wait_for_events(self, seconds: float) -> Sequence[Event]:  # noqa: ARG002
        """All that happens at the next moment at which something does."""
        if not self._events:
            return []
        self.clock = max(self.clock, self._events[0][0])
        found: list[Event] = []
        while self._events and self._events[0][0] <= self.clock:
            _, _, slot, text = heapq.heappop(self._events)
            found.append(MessageFromWorker(slot, text))
        return found

    def kill_worker(self, slot: int) -> None:
        """Nothing runs."""
        self._events = [event for event in self._events if event[2] != slot]
        heapq.heapify(self._events)

    def close(self) -> None:
        """Nothing runs."""
