"""Races and evaluations over any number of workers, whose answers come from a table: what one process decides."""

import dataclasses
import json

import pytest

from benchmarks.scale import warm_up_workers
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.scoring_settings import EXACT, NEVER, STATISTICAL, UnitSizes
from macro_routing.evaluation.work_items import group_examples_into_race_units
from macro_routing.routes import RouteSpace
from macro_routing.search import MarkovPolicy, StoppedScore
from macro_routing.workers.backend import WorkerExited
from macro_routing.workers.worker_messages import work_item_from_json
from macro_routing.workers.worker_pool import WorkerPool
from macro_routing.workers.worker_settings import WorkerSettings
from tests.faults.simulated_backend import SimulatedBackend, outcome_from_table
from tests.runs.small import small_frozen, small_task


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


class Table:
    """The same answers in this process: an executor with one worker and no dispatcher."""

    worker_count = 1

    def run_work_items(self, _spec, asks):
        for item in asks:
            yield item, tuple(tuple(outcome_from_table(route, one) for one in item.unit) for route in item.routes)


def _draws(count):
    import numpy as np

    rng = np.random.default_rng(4)
    policy = MarkovPolicy.make_prior(RouteSpace(6, max_length=10), 0.4, 0.2)
    return [policy.sample_program(rng).to_route(6) for _ in range(count)]


def _evaluator(frozen, executor, store=None):
    return Evaluator(
        frozen,
        small_task(),
        DecodingSettings("likelihood"),
        store,
        UnitSizes(race=6, race_late=3, full=8),
        executor=executor,
    )


@pytest.mark.parametrize("workers", [1, 2, 7, 64])
@pytest.mark.parametrize("mode", [EXACT, NEVER, STATISTICAL])
def test_a_race_is_the_same_to_the_last_stopped_draw(frozen, tmp_path, workers, mode):
    draws, examples = _draws(20), small_task().pools["train"][:60]
    alone = _evaluator(frozen, Table()).race_draws(draws, examples, 4, mode)
    backend = SimulatedBackend(lambda item: len(item.routes) * len(item.unit) * 0.5)
    counted = []
    with WorkerPool(backend, WorkerSettings(workers=workers)) as pool:
        store = ScoreStore(tmp_path / "s.sqlite")
        evaluator = _evaluator(frozen, pool, store)
        object.__setattr__(evaluator, "on_outcomes", counted.append)
        spread = evaluator.race_draws(draws, examples, 4, mode)
        again = evaluator.race_draws(draws, examples, 4, mode)
    assert spread == alone
    assert again.outcomes == alone.outcomes
    assert again.computed_evaluations == 0
    assert sum(counted) == sum(scope.outcomes for scope in store.list_score_scopes())  # nothing twice
    if mode == EXACT:
        assert any(isinstance(outcome, StoppedScore) for outcome in alone.outcomes)


class Late(SimulatedBackend):
    """The first worker is ready and answers at once, the others load their model for a minute."""

    def start_worker(self, slot):
        self._schedule(slot, 60.0 * slot, json.dumps({"ready": 0}))


def test_a_measurement_begins_when_every_worker_has_answered(frozen):
    task = small_task()
    with WorkerPool(Late(), WorkerSettings(workers=3)) as pool:
        warm_up_workers(_evaluator(frozen, pool), pool, task.pools["train"])
        assert pool.counts.finished_by_slot == {0: 1, 1: 1, 2: 1}
        with pytest.raises(ValueError, match="24 examples are needed"):
            warm_up_workers(_evaluator(frozen, pool), pool, task.pools["train"][:20])


class Crashing(SimulatedBackend):
    """A worker that is items one route on one unit dies of it."""

    def __init__(self, route, example):
        super().__init__(lambda item: len(item.routes) * len(item.unit) * 0.5)
        self.curse, self.gone = (route, example), []

    def send_message(self, slot, text):
        _, item = work_item_from_json(text)
        if self.curse[0] in item.routes and self.curse[1] in item.unit:
            self.gone.append(WorkerExited(slot, "killed by SIGKILL"))
        else:
            super().send_message(slot, text)

    def wait_for_events(self, seconds):
        gone, self.gone = self.gone, []
        return gone or super().wait_for_events(seconds)


def test_a_route_that_fails_where_the_race_never_looks_races_like_any_other(frozen, tmp_path):
    """What workers do ahead decides nothing: neither what they find there, nor that they die of it."""
    draws, examples = _draws(20), small_task().pools["train"][:60]
    alone = _evaluator(frozen, Table()).race_draws(draws, examples, 4, EXACT)
    units = group_examples_into_race_units(examples, UnitSizes(race=6, race_late=3, full=8))
    deaths = 0
    for place, (route, looked_at, _) in enumerate(alone.answers):
        if looked_at == len(examples):
            continue
        after = [unit for number, unit in enumerate(units) if sum(map(len, units[:number])) == looked_at]
        backend = Crashing(route, after[0][0])  # where it would have been scored next
        counted = []
        store = ScoreStore(tmp_path / f"{place}.sqlite")
        with WorkerPool(backend, WorkerSettings(workers=7)) as pool:
            evaluator = dataclasses.replace(_evaluator(frozen, pool, store), on_outcomes=counted.append)
            assert evaluator.race_draws(draws, examples, 4, EXACT).outcomes == alone.outcomes
        assert not pool.counts.quarantined
        assert pool.counts.crashes <= 1
        assert sum(counted) == sum(scope.outcomes for scope in store.list_score_scopes())
        deaths += pool.counts.crashes
    assert deaths > 0


def test_more_workers_take_less_time(frozen):
    draws, examples = list(dict.fromkeys(_draws(40)))[:16], small_task().pools["train"][:48]
    clocks = []
    for workers in (1, 2, 4):
        backend = SimulatedBackend(lambda item: float(len(item.routes) * len(item.unit)))
        with WorkerPool(backend, WorkerSettings(workers=workers)) as pool:
            _evaluator(frozen, pool).evaluate(draws, examples)
        clocks.append(backend.clock)
    assert clocks[0] == len(draws) * 48
    assert clocks[0] / clocks[1] > 1.7
    assert clocks[0] / clocks[2] > 3.0
