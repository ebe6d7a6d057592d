"""The transfer study, end to end on a tiny model."""

import dataclasses
import math

import pytest

from macro_routing.errors import SettingsError
from macro_routing.routes import parse_route
from macro_routing.routes.mixture import parse_mixture
from macro_routing.runs import RunFolder
from macro_routing.studies.context import StudyContext, StudyTimeOverError
from macro_routing.studies.one_route_for_all_tasks import run_one_route_for_all_tasks_study
from macro_routing.studies.settings import (
    OneRouteForAllTasksSettings,
    TransferSettings,
)
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from macro_routing.studies.transfer import run_transfer
from tests.studies.contexts import BASE, check_written_files, small_context


def test_transfer(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_transfer(context, TransferSettings(("small", "written")))
    assert len(found.table.rows) == 4
    for row in found.table.rows:
        if row["source"] == row["target"]:  # what its own run has tested
            run = RunFolder.open(context.folder.path / "runs" / f"{row['source']}-1")
            assert row["accuracy"] == pytest.approx(run.read_json("result.json")["comparison"]["routed"])
            assert row["difference"] == pytest.approx(run.read_json("result.json")["difference"])
        else:
            task = TaskWithAnswerMode(row["target"])
            prepared = context.prepare_task(task, 1)
            route = parse_route(row["route"], frozen.layers)
            plain = dataclasses.replace(prepared.evaluator, store=None).evaluate([route], prepared.splits.test)
            assert row["accuracy"] == pytest.approx(plain[route].score.accuracy)
    check_written_files(context, found)
    with pytest.raises(SettingsError, match="two tasks"):
        run_transfer(context, TransferSettings(("small",)))


@pytest.mark.parametrize("method", ["drllm", "cola"])
def test_what_finds_no_route_is_rejected_before_it_searches(tmp_path, frozen, method):
    context = small_context(tmp_path, frozen)
    context = dataclasses.replace(context, base=BASE.with_changes(method=method, search={}))
    with pytest.raises(SettingsError, match=f"--method {method} finds no route"):
        run_transfer(context, TransferSettings(("small", "other")))
    with pytest.raises(SettingsError, match=f"--method {method} finds no route"):
        run_one_route_for_all_tasks_study(context, OneRouteForAllTasksSettings(("small",), 1, ("other",)))
    assert not (context.folder.path / "runs").exists()


def test_a_study_pauses_between_parts_and_goes_on(tmp_path, frozen):
    with pytest.raises(StudyTimeOverError, match="continues where it was"):
        run_transfer(small_context(tmp_path, frozen, minutes=0), TransferSettings(("small", "other")))
    whole = run_transfer(small_context(tmp_path, frozen), TransferSettings(("small", "other")))
    assert math.isfinite(whole.table.rows[0]["difference"])


def test_a_mixture_that_only_compares_choices_is_not_run_where_text_is_written(tmp_path, frozen, monkeypatch):
    context = small_context(tmp_path, frozen)
    tasks = TransferSettings(("small", "written"))
    pmi = parse_mixture("1.5 [L0 RJ] - 0.5 [L0 RJ | no question]", frozen.layers)
    load = StudyContext.load_or_search

    def find_pmi(self, name, config):
        run = load(self, name, config)
        if not name.startswith("small"):
            return run
        return dataclasses.replace(run, result=dataclasses.replace(run.result, route=str(pmi)))

    monkeypatch.setattr(StudyContext, "load_or_search", find_pmi)
    found = run_transfer(context, tasks)
    assert [(row["source"], row["target"]) for row in found.table.rows] == [
        ("small", "small"),
        ("written", "small"),
        ("written", "written"),
    ]
    assert any("only compare choices" in note and "small on written" in note for note in found.table.notes)
    check_written_files(context, found)
