"""Tasks that share questions are named, and count in no mean."""

import dataclasses
from types import SimpleNamespace

import pytest

from macro_routing.cli.console import read_toml
from macro_routing.errors import SettingsError
from macro_routing.routes import parse_route
from macro_routing.runs.progress import Listener
from macro_routing.studies.context import RouteWithSearchedTask
from macro_routing.studies.one_route_for_all_tasks import (
    OUTSIDE,
    make_domain_mean_rows,
    run_one_route_for_all_tasks_study,
)
from macro_routing.studies.paper_config import read_paper_config
from macro_routing.studies.pooled_task import count_shared_examples, make_pooled_task
from macro_routing.studies.question_overlap import (
    check_pooled_tasks_overlap,
    find_contaminating_search_tasks,
    find_rewritten_search_tasks,
)
from macro_routing.studies.settings import OneRouteForAllTasksSettings, SideEffectsSettings, TransferSettings
from macro_routing.studies.side_effects import run_side_effects
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.studies.transfer import run_transfer
from macro_routing.tasks import load_task, make_splits
from tests.datasets import FOLDER, needs_datasets
from tests.runs.small import small_frozen, small_task
from tests.studies.contexts import small_context
from tests.studies.test_paper import PAPER

GSM, HARD, OTHER = TaskWithAnswerMode("gsm8k", "direct"), TaskWithAnswerMode("gsm8k_hard"), TaskWithAnswerMode("other")


class Messages(Listener):
    """Keeps what is said."""

    def __init__(self, said):
        self.said = said

    def on_message(self, text):
        self.said.append(text)


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
    # The same questions in the same words are found and left out of the pool.
    arithmetic = [TaskWithAnswerMode(name) for name in ("mawps", "asdiv_a", "multiarith")]
    check_pooled_tasks_overlap(arithmetic)
    assert find_contaminating_search_tasks(arithmetic[0], arithmetic) == "asdiv_a, multiarith"
    assert find_rewritten_search_tasks(arithmetic[0], arithmetic) == ""
    assert find_rewritten_search_tasks(HARD, [GSM, OTHER]) == "gsm8k"


def test_test_questions_of_other_tasks_are_left_out_of_the_pool(tmp_path, frozen):
    """The other task's test questions are among the first one's training examples."""
    said = []
    first = small_task("mawps")
    test = tuple(dataclasses.replace(one, id=f"test {one.id}") for one in first.pools["train"][:150])
    second = dataclasses.replace(
        small_task("multiarith", offset=31), pools={**small_task("x", offset=31).pools, "test": test}
    )
    context = dataclasses.replace(
        small_context(tmp_path, frozen),
        loaded_tasks={"mawps": first, "multiarith": second, "other": small_task("other", offset=47)},
        listener=Messages(said),
    )
    found = run_one_route_for_all_tasks_study(
        context, OneRouteForAllTasksSettings(("mawps", "multiarith"), 1, ("other",))
    )
    left_out = found.details["left_out_of_pool"]
    assert set(left_out) == {"mawps"}
    assert sum(left_out["mawps"].values()) > 0
    assert any("left out of the pool (mawps" in text for text in said)
    assert any("left out of the pool" in note for note in found.table.notes)
    (mean,) = [row for row in found.table.rows if (row["domain"], row["task"]) == ("in domain", "mean")]
    parts = [row["accuracy"] for row in found.table.rows if row["task"] in {"mawps", "multiarith"}]
    assert mean["accuracy"] == pytest.approx(sum(parts) / 2)


@needs_datasets
def test_the_papers_pool_is_accepted_and_cleaned(monkeypatch):
    monkeypatch.setenv("MACRO_DATA_DIR", str(FOLDER))
    (item,) = [item for item in read_paper_config(read_toml(PAPER)).items if item.name == "one-route"]
    check_pooled_tasks_overlap(item.settings.task_names)
    splits = {
        task.task: make_splits(load_task(task.task), seed=1, test_seed=0) for task in item.settings.study_task_names
    }
    members = {task.task: SimpleNamespace(splits=splits[task.task]) for task in item.settings.task_names}
    tested = {one.normalized_question for of_task in splits.values() for one in of_task.test}
    left_out = count_shared_examples(members, tested)
    assert {"mawps", "asdiv_a", "multiarith"} <= set(left_out)
    pool = make_pooled_task(members, tested).pools
    assert not tested & {one.normalized_question for split in ("train", "validation") for one in pool[split]}
    before = sum(len(run.splits.train) + len(run.splits.validation) for run in members.values())
    removed = sum(sum(count.values()) for count in left_out.values())
    assert len(pool["train"]) + len(pool["validation"]) == before - removed


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
