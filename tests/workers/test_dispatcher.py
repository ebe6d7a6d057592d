"""The dispatcher's decisions, with workers that are played: what a real one does when it dies is in test_faults.py."""

import json
import time
from collections import deque

import pytest

from macro_routing.errors import MacroError, TaskError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.scoring_settings import UnitSizes
from macro_routing.evaluation.work_items import EvaluatorSpec, WorkItem, group_by_shared_prefix, split_work
from macro_routing.routes import parse_route
from macro_routing.runs import make_run_config, run_search
from macro_routing.search import ScoringFailure
from macro_routing.tasks import Example
from macro_routing.workers.adaptive_timeout import AdaptiveTimeout, estimate_item_work
from macro_routing.workers.backend import MessageFromWorker, WorkerExited
from macro_routing.workers.dispatcher import Dispatcher
from macro_routing.workers.worker_messages import encode_worker_results, work_item_from_json, work_item_to_json
from macro_routing.workers.worker_pool import WorkerPool
from macro_routing.workers.worker_settings import WorkerError, WorkerSettings
from tests.runs.small import small_frozen, small_task

ROUTES = [parse_route(text, 6) for text in ("L0 RJ", "L0 L2 RJ", "L0-L3 L3 RJ")]
UNIT = tuple(Example(f"e{number}", f"what is {number}?", "A", ("x", "y")) for number in range(3))
SPEC = EvaluatorSpec("t", DecodingSettings("likelihood"), "auto", UnitSizes(full=3), "scope")
DIE, HANG = "die", "hang"


class ScriptedBackend:
    """Results at once, unless ``fate`` of a slot and item says otherwise."""

    def __init__(self, fate=lambda _slot, _ask: None, starts=None):
        self.fate = fate
        self.starts = starts or {}
        self.events = deque()
        self.given = []
        self.killed = []

    def start_worker(self, slot):
        self.events = deque(event for event in self.events if event.slot != slot)
        outcomes = self.starts.get(slot)
        outcome = outcomes.pop(0) if outcomes else "ready"
        if outcome == "ready":
            self.events.append(MessageFromWorker(slot, json.dumps({"ready": 1})))
        elif outcome != HANG:
            self.events.append(outcome if isinstance(outcome, MessageFromWorker) else WorkerExited(slot, outcome))

    def send_message(self, slot, text):
        _, item = work_item_from_json(text)
        self.given.append(item)
        fate = self.fate(slot, item)
        if fate == DIE:
            self.events.append(WorkerExited(slot, "killed by SIGKILL"))
        elif isinstance(fate, dict):
            self.events.append(MessageFromWorker(slot, json.dumps(fate)))
        elif fate != HANG:
            answers = tuple(tuple(outcome(route, one) for one in item.unit) for route in item.routes)
            self.events.append(
                MessageFromWorker(slot, json.dumps({"results": encode_worker_results(answers), "notes": []}))
            )

    def wait_for_events(self, seconds):
        if not self.events and seconds > 1:
            raise AssertionError("the dispatcher waits for something that will not happen")
        events, self.events = list(self.events), deque()
        return events

    def kill_worker(self, slot):
        self.killed.append(slot)
        self.events = deque(event for event in self.events if event.slot != slot)

    def close(self):
        pass


def outcome(route, example):
    return ExampleOutcome(route.length % 2 == 0, f"{route} on {example.id}")


def make_items(count=4):
    units = [
        tuple(Example(f"u{number}/{one.id}", one.question, "A", one.choices) for one in UNIT) for number in range(count)
    ]
    return [WorkItem(tuple(ROUTES[:3]), unit) for unit in units]


def run_dispatcher(backend, workers=2, items=None, said=None, **settings):
    report = (said if said is not None else []).append
    dispatcher = Dispatcher(backend, WorkerSettings(workers=workers, **settings), report)
    found = list(dispatcher.run_work_items(SPEC, items or make_items()))
    return dispatcher, found


def complete(found, items):
    """Every route on every unit once, right, or failed."""
    seen = [(route, item.unit) for item, _ in found for route in item.routes]
    assert len(seen) == len(set(seen))
    assert set(seen) == {(route, item.unit) for item in items for route in item.routes}
    for item, answers in found:
        if not isinstance(answers, ScoringFailure):
            assert answers == tuple(tuple(outcome(route, one) for one in item.unit) for route in item.routes)
    return True


def test_items_survive_the_wire():
    item = WorkItem((ROUTES[1], ROUTES[0]), UNIT)
    assert work_item_from_json(work_item_to_json(SPEC, item)) == (SPEC, item)


@pytest.mark.parametrize("workers", [1, 3, 50])
def test_every_item_is_answered_once(workers):
    backend = ScriptedBackend()
    dispatcher, found = run_dispatcher(backend, workers)
    assert complete(found, make_items())
    assert len(backend.given) == dispatcher.counts.finished == 4


def test_a_lost_worker_is_replaced_and_its_item_repeated():
    lives = iter([DIE, None, None, DIE])
    said = []
    dispatcher, found = run_dispatcher(ScriptedBackend(lambda *_: next(lives, None)), said=said)
    assert complete(found, make_items())
    assert dispatcher.counts.crashes == 2
    assert "killed by SIGKILL" in said[0]


def test_a_hanging_worker_is_killed_at_its_deadline_and_a_late_answer_is_nobodys():
    hangs = iter([HANG])
    backend = ScriptedBackend(lambda *_: next(hangs, None))
    dispatcher, found = run_dispatcher(backend, worker_timeout=0.05 / 60)
    assert complete(found, make_items())
    assert dispatcher.counts.hangs == 1
    assert len(backend.killed) == 1


class SlowBackend(ScriptedBackend):
    """Results after so many seconds of the real clock."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.later = []

    def send_message(self, slot, text):
        super().send_message(slot, text)
        self.later.append((time.monotonic() + self.seconds(slot), self.events.pop()))

    def wait_for_events(self, seconds):
        found, end = list(self.events), time.monotonic() + seconds
        self.events.clear()
        while True:
            found += [event for due, event in self.later if due <= time.monotonic()]
            self.later = [(due, event) for due, event in self.later if event not in found]
            if found or not self.later or time.monotonic() >= end:
                return found
            time.sleep(0.005)

    def kill_worker(self, slot):
        super().kill_worker(slot)
        self.later = [(due, event) for due, event in self.later if event.slot != slot]


def test_a_large_item_is_given_longer():
    many = tuple(Example(f"e{number}", "q", "A", ("x", "y")) for number in range(100))
    items = [WorkItem(tuple(ROUTES[:3]), many)]
    dispatcher, found = run_dispatcher(SlowBackend(lambda _slot: 0.3), workers=1, items=items, worker_timeout=0.1 / 60)
    assert complete(found, items)
    assert dispatcher.counts.hangs == 0
    slow = SlowBackend(lambda _slot: 0.3)
    with pytest.raises(WorkerError, match=r"no answer within 0\.1 seconds; .* longer --worker-timeout\) and resume"):
        run_dispatcher(slow, workers=1, items=make_items(1), worker_timeout=0.1 / 60)


def test_timeout_grows_with_the_item_and_by_what_others_have_taken():
    few, many = (tuple(Example(f"e{number}", "q", "A") for number in range(count)) for count in (10, 640))
    standard, longer = ROUTES[0], ROUTES[2]
    assert estimate_item_work(WorkItem((standard,), few), 0) == 10
    assert estimate_item_work(WorkItem((standard, standard), few), 128) == 40
    assert estimate_item_work(WorkItem((longer,), few), 0) > 10
    assert estimate_item_work(WorkItem((standard,) * 10, few, paired=True), 0) == 10
    timeout = AdaptiveTimeout(100.0)
    assert timeout.timeout_seconds("a", 1) == 100  # the least
    assert 100 < timeout.timeout_seconds("a", estimate_item_work(WorkItem((standard,) * 2, few), 1000)) < 1000
    assert (
        timeout.timeout_seconds("a", estimate_item_work(WorkItem((standard,), many), 0)) == 800
    )  # nothing was measured yet
    timeout.record_item_duration("a", 10, 500)
    assert timeout.timeout_seconds("a", 640) == 10 * 640 * 50
    assert timeout.timeout_seconds("b", 640) == 800  # another task has another speed
    timeout.record_item_duration("b", 640, 6.4)
    assert timeout.timeout_seconds("b", 640) == 100
    assert DecodingSettings("reasoning", 400, 100).max_new_tokens == 500
    assert [DecodingSettings(mode, 400, 100).max_new_tokens for mode in ("direct", "likelihood")] == [100, 0]


def test_an_answer_that_came_while_the_driver_was_busy_is_taken():
    backend = SlowBackend(lambda slot: 0.1 * slot)
    dispatcher = Dispatcher(backend, WorkerSettings(workers=2, worker_timeout=0.2 / 60))
    found = []
    for answer in dispatcher.run_work_items(SPEC, make_items(2)):
        found.append(answer)
        time.sleep(0.3)  # as a store on a slow disk: the other's answer comes, and its time goes by
    assert complete(found, make_items(2))
    assert (dispatcher.counts.hangs, backend.killed) == (0, [])


def test_a_worker_that_got_ready_while_the_driver_was_busy_is_kept():
    backend = ScriptedBackend(starts={1: [HANG]})
    dispatcher = Dispatcher(backend, WorkerSettings(workers=2, start_timeout=0.1 / 60))
    run = dispatcher.run_work_items(SPEC, make_items())
    next(run)
    time.sleep(0.15)
    backend.events.append(MessageFromWorker(1, json.dumps({"ready": 1})))
    list(run)
    assert dispatcher.counts.hangs == 0


def test_all_workers_can_be_waited_for():
    """What a measurement needs; a worker that cannot be started at all is not waited for."""
    backend = SlowBackend(lambda _slot: 0.0)
    backend.starts = {1: [HANG], 2: ["no room"] * 3}
    backend.later.append((time.monotonic() + 0.1, MessageFromWorker(1, json.dumps({"ready": 1}))))
    dispatcher = Dispatcher(backend, WorkerSettings(workers=3))
    dispatcher.wait_until_ready()
    assert [slot.is_ready for slot in dispatcher._slots] == [True, True, False]
    assert complete(list(dispatcher.run_work_items(SPEC, make_items(2))), make_items(2))
    assert dispatcher.counts.finished_by_slot == {0: 1, 1: 1}


def test_what_is_worked_ahead_is_tried_once_and_blamed_on_nobody():
    cursed = ROUTES[1]
    backend = ScriptedBackend(lambda _slot, item: DIE if cursed in item.routes and item.unit == UNIT else None)
    ahead = WorkItem(tuple(ROUTES), UNIT, prefetch=True)
    dispatcher, found = run_dispatcher(backend, items=[*make_items(2), ahead])
    assert complete(found, [*make_items(2), ahead])
    assert [answers for item, answers in found if item.prefetch] == [ScoringFailure("killed by SIGKILL")]
    assert dispatcher.counts.crashes == 1
    assert not dispatcher.counts.quarantined
    # In earnest it is tried as often as anything, and what is known of a route holds for what is ahead, too.
    again = list(dispatcher.run_work_items(SPEC, [WorkItem(tuple(ROUTES), UNIT)]))
    assert [item.routes for item, answers in again if isinstance(answers, ScoringFailure)] == [(cursed,)]
    deaths = dispatcher.counts.crashes
    last = list(dispatcher.run_work_items(SPEC, [ahead]))
    assert complete(last, [ahead])
    assert dispatcher.counts.crashes == deaths


def test_a_route_that_kills_every_time_is_given_up_and_the_others_are_not():
    cursed = ROUTES[1]
    said = []
    backend = ScriptedBackend(lambda _slot, item: DIE if cursed in item.routes else None)
    dispatcher, found = run_dispatcher(backend, said=said)
    assert complete(found, make_items())
    failed = [(item.routes, answers.reason) for item, answers in found if isinstance(answers, ScoringFailure)]
    assert failed == [((cursed,), "crashed its worker 3 times: killed by SIGKILL")] * 4
    # Two together, three alone, on one unit; what was under way on the other worker may have met it, too.
    assert dispatcher.counts.crashes <= 2 * (2 + 3)
    assert [line for line in said if "is given up" in line]
    # Known now: nobody is sent to die of it again.
    deaths = dispatcher.counts.crashes
    again = list(dispatcher.run_work_items(SPEC, [WorkItem(tuple(ROUTES[:3]), UNIT)]))
    assert complete(again, [WorkItem(tuple(ROUTES[:3]), UNIT)])
    assert dispatcher.counts.crashes == deaths


def test_a_route_that_was_given_up_meets_no_worker_on_any_later_unit():
    cursed = ROUTES[1]
    backend = ScriptedBackend(lambda _slot, item: DIE if cursed in item.routes else None)
    items = [WorkItem((cursed,), one.unit) for one in make_items(5)]
    dispatcher, found = run_dispatcher(backend, workers=1, items=items)
    assert complete(found, items)
    assert dispatcher.counts.crashes == 3
    assert sum(cursed in item.routes for item in backend.given) == 3


def test_a_route_is_not_blamed_where_the_standard_pass_dies_as_well():
    backend = ScriptedBackend(lambda _slot, item: DIE if item.unit[0].id.startswith("u0") else None)
    with pytest.raises(WorkerError, match="the standard pass crashes its workers: killed by SIGKILL"):
        run_dispatcher(backend, items=[WorkItem((ROUTES[1],), one.unit) for one in make_items()])


def test_pairs_are_split_as_pairs():
    items = [WorkItem(tuple(ROUTES[:3]), UNIT, paired=True)]

    class Pairs(ScriptedBackend):
        def send_message(self, slot, text):
            _, item = work_item_from_json(text)
            if ROUTES[1] in item.routes:
                self.events.append(WorkerExited(slot, "gone"))
                return
            answers = tuple((outcome(route, one),) for route, one in zip(item.routes, item.unit, strict=True))
            self.events.append(MessageFromWorker(slot, json.dumps({"results": encode_worker_results(answers)})))

    backend = Pairs()
    dispatcher = Dispatcher(backend, WorkerSettings(workers=2))
    found = list(dispatcher.run_work_items(SPEC, items))
    assert sorted((item.routes[0].length, item.unit[0].id) for item, _ in found) == sorted(
        (route.length, one.id) for route, one in zip(ROUTES[:3], UNIT, strict=True)
    )


def test_the_users_mistake_ends_the_run_with_the_users_error():
    mistake = {"error": "the grader g failed", "class": "TaskError"}
    with pytest.raises(TaskError, match="the grader g failed"):
        run_dispatcher(ScriptedBackend(lambda *_: mistake))
    with pytest.raises(MacroError, match="no such model"):
        run_dispatcher(
            ScriptedBackend(
                starts={0: [MessageFromWorker(0, json.dumps({"error": "no such model", "class": "ModelError"}))]}
            )
        )


def test_workers_that_cannot_start_are_done_without_until_none_is_left():
    said = []
    backend = ScriptedBackend(starts={0: ["no room"] * 3})
    _, found = run_dispatcher(backend, said=said)
    assert complete(found, make_items())
    assert any("continuing with 1" in line for line in said)
    with pytest.raises(WorkerError, match="no worker can be started: no room"):
        run_dispatcher(ScriptedBackend(starts={0: ["no room"] * 3, 1: ["no room"] * 3}))


def test_a_worker_that_never_gets_ready_is_replaced():
    backend = ScriptedBackend(starts={0: [HANG], 1: [HANG]})
    dispatcher, found = run_dispatcher(backend, start_timeout=0.05 / 60)
    assert complete(found, make_items())
    assert dispatcher.counts.hangs == 2


def test_whoever_stops_listening_gets_nothing_old_later():
    backend = ScriptedBackend()
    dispatcher = Dispatcher(backend, WorkerSettings(workers=2))
    first = dispatcher.run_work_items(SPEC, make_items())
    next(first)
    first.close()
    other = [WorkItem((ROUTES[2],), UNIT)]
    assert complete(list(dispatcher.run_work_items(SPEC, other)), other)


def test_what_is_not_listened_to_any_more_is_dealt_with_by_the_next_run():
    backend = ScriptedBackend()
    dispatcher = Dispatcher(backend, WorkerSettings(workers=2))
    first = dispatcher.run_work_items(SPEC, make_items(2))
    next(first)  # both have answered
    first.close()
    other = [WorkItem((ROUTES[2],), one.unit) for one in make_items(2)]
    again = dispatcher.run_work_items(SPEC, other)
    next(again)
    assert [slot.is_busy for slot in dispatcher._slots] == [False, True]  # both have work
    again.close()
    assert complete(list(dispatcher.run_work_items(SPEC, other)), other)
    assert sorted(dispatcher._idle) == [0, 1]
    # The same where what was not heard is that a worker is lost, or lost since.
    lives = iter([None, DIE])
    backend = ScriptedBackend(lambda *_: next(lives, None))
    dispatcher = Dispatcher(backend, WorkerSettings(workers=2))
    first = dispatcher.run_work_items(SPEC, make_items(2))
    next(first)
    first.close()
    backend.events.append(WorkerExited(0, "killed by SIGKILL"))
    assert complete(list(dispatcher.run_work_items(SPEC, other)), other)
    assert dispatcher.counts.crashes == 2
    assert len(backend.given) == 2 + 2  # no exited worker got an item


def test_a_worker_that_told_of_an_error_is_asked_again():
    backend = ScriptedBackend(lambda *_: {"error": "the grader g failed", "class": "TaskError"})
    dispatcher = Dispatcher(backend, WorkerSettings(workers=2))
    with pytest.raises(TaskError):
        list(dispatcher.run_work_items(SPEC, make_items()))
    backend.fate = lambda *_: None
    assert complete(list(dispatcher.run_work_items(SPEC, make_items())), make_items())
    assert sorted(dispatcher._idle) == [0, 1]
    assert dispatcher.counts.crashes == 0


def test_a_worker_that_could_not_set_up_is_replaced_in_the_next_run():
    backend = ScriptedBackend(
        starts={0: [MessageFromWorker(0, json.dumps({"error": "no such model", "class": "ModelError"}))]}
    )
    dispatcher = Dispatcher(backend, WorkerSettings(workers=1))
    with pytest.raises(MacroError, match="no such model"):
        list(dispatcher.run_work_items(SPEC, make_items()))
    assert complete(list(dispatcher.run_work_items(SPEC, make_items())), make_items())


def test_without_any_worker_left_a_later_run_says_so_at_once():
    dispatcher = Dispatcher(ScriptedBackend(starts={0: ["no room"] * 3}), WorkerSettings(workers=1))
    for call in (lambda: list(dispatcher.run_work_items(SPEC, make_items())), dispatcher.wait_for_model_facts):
        with pytest.raises(WorkerError, match="no worker can be started: no room"):
            call()


def test_what_happens_to_workers_is_in_the_runs_log_and_in_no_other(tmp_path):
    lives, told = iter([DIE]), []
    config = make_run_config(
        task="small",
        model="small",
        method="random",
        search={"iterations": 1, "draws": 4},
        data={"training": 8, "validation": 8, "test": 8},
    )
    with WorkerPool(ScriptedBackend(lambda *_: next(lives, None)), WorkerSettings(workers=2), told.append) as pool:
        for place in (tmp_path / "first", tmp_path / "second"):
            store = place.with_suffix(".sqlite")
            run_search(config, place, frozen=small_frozen(), task=small_task(), store=store, workers=pool)
    lost = "a worker exited: killed by SIGKILL; a new one replaces it"
    assert told == [lost]
    logs = [(tmp_path / name / "log.txt").read_text() for name in ("first", "second")]
    assert [log.count(lost) for log in logs] == [1, 0]


def test_work_is_cut_along_common_beginnings():
    routes = [parse_route(text, 30) for text in ("L0-L20 L20 RJ", "L0 L3 RJ", "L0-L20 L19 RJ", "L0 L3 L3 RJ")]
    groups = group_by_shared_prefix(routes, 2)
    assert sorted(map(set, groups), key=len) == sorted([{routes[0], routes[2]}, {routes[1], routes[3]}], key=len)
    assert group_by_shared_prefix(routes[:1], 8) == [routes[:1]]
    items = make_items(2)
    assert split_work(2, items) == items
    parts = split_work(6, items)
    assert len(parts) == 6
    assert {(route, part.unit) for part in parts for route in part.routes} == {
        (route, item.unit) for item in items for route in item.routes
    }
    pairs = split_work(3, [WorkItem(tuple(ROUTES[:3]), UNIT, paired=True)])
    assert [(part.routes[0], part.unit[0]) for part in pairs] == list(zip(ROUTES[:3], UNIT, strict=True))
