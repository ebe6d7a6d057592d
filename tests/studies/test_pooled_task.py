"""Several tasks as one: examples are asked and graded as their own tasks do."""

from macro_routing.routes import Route, parse_route
from macro_routing.runs.prepare import prepare_run
from macro_routing.studies.pooled_task import get_member_task, make_pooled_task, with_multitask_evaluator
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from tests.studies.contexts import SMALL, WRITTEN, small_context


def test_every_example_is_answered_by_its_own_task(tmp_path):
    context = small_context(tmp_path)
    members = {str(task): context.prepare_task(task, 1) for task in (SMALL, WRITTEN)}
    task = make_pooled_task(members)
    config = context.make_run_config(TaskWithAnswerMode("pool", "direct"), 1)
    run = with_multitask_evaluator(
        prepare_run(config, task=task, frozen=context.frozen_model, store=context.store), members
    )
    assert {get_member_task(one) for one in run.splits.train} == {"small", "written"}
    routes = [Route.standard(context.frozen_model.layers), parse_route("L0-L2 L1 RJ", context.frozen_model.layers)]
    mixed = run.splits.test[15:25]
    found = run.evaluator.evaluate(routes, mixed)
    for name, member in members.items():
        own = {one.id: one for one in member.splits.test}
        places = [place for place, one in enumerate(mixed) if get_member_task(one) == name]
        assert places
        alone = member.evaluator.evaluate(routes, [own[mixed[place].id.split("::")[1]] for place in places])
        for route in routes:
            mine = [found[route].outcomes[place] for place in places]
            assert [(one.correct, one.prediction, one.text) for one in mine] == [
                (one.correct, one.prediction, one.text) for one in alone[route].outcomes
            ]


def test_splits_stay_what_they_were(tmp_path):
    context = small_context(tmp_path)
    members = {str(task): context.prepare_task(task, 1) for task in (SMALL, WRITTEN)}
    config = context.make_run_config(TaskWithAnswerMode("pool", "direct"), 1)
    run = prepare_run(config, task=make_pooled_task(members), frozen=context.frozen_model, store=context.store)
    for split in ("train", "validation", "test"):
        allowed = {f"{name}::{one.id}" for name, member in members.items() for one in member.splits.get_split(split)}
        assert {one.id for one in run.splits.get_split(split)} <= allowed
