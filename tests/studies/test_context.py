"""Searches and measurements that studies keep, end to end on a tiny model."""

import dataclasses

import pytest

from macro_routing.errors import RunError
from macro_routing.runs.result import SELECTED, STANDARD
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from tests.runs.small import small_frozen, small_task
from tests.studies.contexts import BASE, OTHER, SMALL, small_context


def test_another_model_of_the_same_name_is_rejected(tmp_path, frozen):
    small_context(tmp_path, frozen).load_or_search("one", small_context(tmp_path, frozen).make_run_config(SMALL, 1))
    other = small_context(tmp_path, small_frozen("qwen2"))
    with pytest.raises(RunError, match="other weights"):
        other.load_or_search("two", other.make_run_config(SMALL, 1))


def test_a_finished_search_must_be_the_one_that_is_wanted(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    context.load_or_search("one", context.make_run_config(SMALL, 1))
    idle = dataclasses.replace(context, loaded_model=None)  # settings are compared without a model
    with pytest.raises(RunError, match=r"other settings \(seed, search\)"):
        idle.load_or_search("one", context.make_run_config(SMALL, 2, search={"draws": 7}))
    changed = dataclasses.replace(context, loaded_tasks={"small": small_task("small", offset=31)})
    with pytest.raises(RunError, match="run on other examples than small has now"):
        changed.load_or_search("one", context.make_run_config(SMALL, 1))
    with pytest.raises(RunError, match="run with other weights"):
        small_context(tmp_path, small_frozen("qwen2")).load_or_search("one", context.make_run_config(SMALL, 1))
    # Without a model as well: a finished part needs none, and its questions can be compared all the same.
    with pytest.raises(RunError, match="run on other examples than small has now"):
        dataclasses.replace(changed, loaded_model=None).load_or_search("one", context.make_run_config(SMALL, 1))


def test_a_study_of_a_route_minds_no_setting_of_a_search(tmp_path, frozen):
    few = BASE.with_changes(search={"iterations": 500})
    context = dataclasses.replace(small_context(tmp_path, frozen), base=few)
    assert len(context.prepare_task(SMALL, 1).splits.test) > 0


def test_the_standard_pass_is_scored_by_seed(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    arm = context.load_or_search("one", context.make_run_config(SMALL, 2))
    assert set(arm.right) >= {STANDARD, SELECTED["macro"]}
    assert len(arm.right[STANDARD]) == len(small_task().pools["test"][:20])


def test_where_a_route_was_searched(subject):
    assert subject.was_searched_on_task(SMALL)
    assert subject.was_searched_on_task(TaskWithAnswerMode("small", "likelihood"))
    assert not subject.was_searched_on_task(OTHER)
    direct = dataclasses.replace(subject, task=TaskWithAnswerMode("small", "direct"))
    assert not direct.was_searched_on_task(TaskWithAnswerMode("small", "reasoning"))
    assert not dataclasses.replace(subject, has_source=False).was_searched_on_task(SMALL)
