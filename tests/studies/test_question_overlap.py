"""Tasks that share questions are named, and count in no mean."""

import dataclasses

import pytest

from macro_routing.errors import SettingsError
from macro_routing.routes import parse_route
from macro_routing.studies.context import RouteWithSearchedTask
from macro_routing.studies.one_route_for_all_tasks import (
    OUTSIDE,
    make_domain_mean_rows,
    run_one_route_for_all_tasks_study,
)
from macro_routing.studies.question_overlap import (
    check_pooled_tasks_overlap,
    find_contaminating_search_tasks,
)
from macro_routing.studies.settings import OneRouteForAllTasksSettings, SideEffectsSettings, TransferSettings
from macro_routing.studies.side_effects import run_side_effects
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.studies.transfer import run_transfer
from tests.runs.small import small_frozen, small_task
from tests.studies.contexts import small_context

GSM, HARD, OTHER = TaskWithAnswerMode("gsm8k", "direct"), TaskWithAnswerMode("gsm8k_hard"), TaskWithAnswerMode("other")


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


def context_for(path, frozen):
    """Tiny questions under the names of benchmarks that share theirs; no benchmark's file is read."""
    tasks = {
        "gsm8k": small_task("gsm8k"),
        "gsm8k_hard": small_task("gsm8k_hard"),
        "other": small_task("other", offset=31),
    }
    return dataclasses.replace(small_context(path, frozen), loaded_tasks=tasks)


def test_what_is_shared():
    assert find_contaminating_search_tasks(HARD, [GSM, OTHER]) == "gsm8k"
    assert (
        find_contaminating_search_tasks(TaskWithAnswerMode("gsm8k", "reasoning"), [GSM]) == ""
    )  # its own training and test questions are apart
    check_pooled_tasks_overlap([GSM, OTHER])
    with pytest.raises(SettingsError, match="gsm8k and gsm8k_hard contaminate each other"):
        check_pooled_tasks_overlap([OTHER, HARD, GSM])


def test_a_pool_of_such_tasks_is_rejected_before_the_search(tmp_path, frozen):
    context = context_for(tmp_path, frozen)
    with pytest.raises(SettingsError, match="contaminate"):
        run_one_route_for_all_tasks_study(
            context, OneRouteForAllTasksSettings((TaskWithAnswerMode("gsm8k").name_as_given, HARD.name_as_given), 1, ())
        )
    assert not (context.folder.path / "runs").exists()


def test_they_are_left_out_of_means():
    rows = [
        {"domain": OUTSIDE, "task": "a", "standard": 0.5, "accuracy": 1.0, "shares_questions": "b"},
        {"domain": OUTSIDE, "task": "c", "standard": 0.0, "accuracy": 1.0, "shares_questions": ""},
    ]
    correct = {(OUTSIDE, "a"): [({"x": 0, "y": 1}, {"x": 1, "y": 1})], (OUTSIDE, "c"): [({"z": 0}, {"z": 1})]}
    (mean,) = make_domain_mean_rows(OUTSIDE, rows, correct)
    assert (mean["standard"], mean["difference"], mean["p"]) == (0.0, 1.0, None)
    assert make_domain_mean_rows(OUTSIDE, rows[:1], correct) == []


def test_they_are_named_in_every_table(tmp_path, frozen):
    known = RouteWithSearchedTask(parse_route("L0-L2 L1-L3 L4 RJ", frozen.layers), TaskWithAnswerMode("gsm8k"), 1)
    context = context_for(tmp_path / "effects", frozen)
    found = run_side_effects(context, known, SideEffectsSettings((HARD.name_as_given, "other"), None, 4))
    assert [row["shares_questions"] for row in found.table.rows] == ["gsm8k", ""]
    assert "of 1 tasks" in found.headline
    moved = run_transfer(
        context_for(tmp_path / "transfer", frozen),
        TransferSettings((TaskWithAnswerMode("gsm8k").name_as_given, HARD.name_as_given)),
    )
    assert [row["shares_questions"] for row in moved.table.rows] == ["", "gsm8k_hard", "gsm8k", ""]
    assert "nothing is transferred" in moved.headline
