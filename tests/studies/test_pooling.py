"""Several tasks as one: examples are asked and graded as their own tasks do."""

from macro_routing.routes import Route, parse_route
from macro_routing.runs.starting import prepare
from macro_routing.studies.bench import TaskName
from macro_routing.studies.pooling import member_of, pooled, pooled_task
from tests.studies.benches import SMALL, WRITTEN, small_bench


def test_every_example_is_answered_by_its_own_task(tmp_path):
    bench = small_bench(tmp_path)
    members = {str(task): bench.prepared(task, 1) for task in (SMALL, WRITTEN)}
    task = pooled_task(members)
    config = bench.config(TaskName("pool", "direct"), 1)
    run = pooled(prepare(config, task=task, frozen=bench.frozen, store=bench.store), members)
    assert {member_of(one) for one in run.splits.train} == {"small", "written"}
    routes = [Route.standard(bench.frozen.layers), parse_route("L0-L2 L1 RJ", bench.frozen.layers)]
    mixed = run.splits.test[15:25]
    found = run.evaluator.evaluate(routes, mixed)
    for name, member in members.items():
        own = {one.id: one for one in member.splits.test}
        places = [place for place, one in enumerate(mixed) if member_of(one) == name]
        assert places
        alone = member.evaluator.evaluate(routes, [own[mixed[place].id.split("::")[1]] for place in places])
        for route in routes:
            mine = [found[route].outcomes[place] for place in places]
            assert [(one.correct, one.prediction, one.text) for one in mine] == [
                (one.correct, one.prediction, one.text) for one in alone[route].outcomes
            ]


def test_splits_stay_what_they_were(tmp_path):
    bench = small_bench(tmp_path)
    members = {str(task): bench.prepared(task, 1) for task in (SMALL, WRITTEN)}
    config = bench.config(TaskName("pool", "direct"), 1)
    run = prepare(config, task=pooled_task(members), frozen=bench.frozen, store=bench.store)
    for split in ("train", "validation", "test"):
        allowed = {f"{name}::{one.id}" for name, member in members.items() for one in member.splits.named(split)}
        assert {one.id for one in run.splits.named(split)} <= allowed
