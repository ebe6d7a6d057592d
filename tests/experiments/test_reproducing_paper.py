"""The items of the paper's page: what is read as ours, and what counts as done."""

import json

import pytest

from experiments import reproducing_paper
from experiments.reproducing_paper import NO_GPU, NO_MODELS, PAPER, make_available_rows, make_rows
from macro_routing.cli.console import read_toml
from macro_routing.studies.paper import PaperSession
from macro_routing.studies.paper_config import list_units, read_paper_config


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def write_result(folder, headline):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.json").write_text(json.dumps({"headline": headline}))


def get_rows(runs):
    return {row["item"]: row for row in make_rows(PAPER, runs, NO_MODELS)}


def test_an_item_of_the_models_at_hand_is_done_as_far_as_its_runs_are_kept(tmp_path, monkeypatch):
    before = {row["item"]: row for row in make_available_rows(tmp_path / "none", tmp_path)}
    assert before["main-table"]["status"] == NO_GPU
    kept = {"method": "macro", "seed": 1, "seconds": 7200.0}
    monkeypatch.setattr(reproducing_paper, "is_kept", lambda unit, _: (unit.method, unit.seed) == ("macro", 1))
    monkeypatch.setattr(reproducing_paper, "read_records", lambda *_: [kept, {**kept, "seed": 2, "seconds": 9.0}])
    record = tmp_path / "paper_main_table.json"
    record.write_text(json.dumps({"config": {"headline": "gathered"}}))
    rows = {row["item"]: row for row in make_available_rows(tmp_path, tmp_path)}
    assert (rows["main-table"]["status"], rows["main-table"]["ours"]) == (f"65 of 195 units; {NO_GPU}", "gathered")
    assert rows["main-table"]["hours"] == pytest.approx(130 + before["main-table"]["hours"] * 2 / 3, rel=1e-3)
    assert rows["default"] == before["default"]


def test_nothing_was_run(runs):
    rows = get_rows(runs)
    assert rows["main-table"]["status"] == rows["one-route"]["status"] == NO_MODELS
    assert rows["composition"]["status"] == f"{NO_MODELS}; needs the routes of main-table and llama"
    assert rows["cost"]["status"] == f"{NO_MODELS}; needs the routes of main-table"
    assert rows["one-route"]["ours"].startswith("qwen2.5-coder-1.5b")
    assert rows["main-table"]["ours"] == ""


def test_items_are_read_where_they_are_gathered(runs, monkeypatch):
    config = read_paper_config(read_toml(PAPER))
    of_item = [unit for unit in list_units(config) if unit.item.name == "one-route"]
    for unit in of_item[:-1]:
        write_result(runs / "one-route" / unit.name, "of one unit")
    write_result(runs / "one-route", "gathered")
    write_result(runs / "composition", "composed")
    rows = get_rows(runs)
    assert (rows["one-route"]["ours"], rows["one-route"]["status"]) == ("gathered", f"5 of 6 units; {NO_MODELS}")
    assert rows["composition"]["ours"] == "composed"
    write_result(runs / "one-route" / of_item[-1].name, "of one unit")
    finished = PaperSession.is_finished
    is_table = lambda unit: unit.item.study == "main-table"  # noqa: E731
    monkeypatch.setattr(PaperSession, "is_finished", lambda self, unit: is_table(unit) or finished(self, unit))
    rows = get_rows(runs)
    assert [rows[name]["status"] for name in ("main-table", "llama", "one-route", "composition")] == ["done"] * 4
    assert rows["cost"]["status"].startswith(reproducing_paper.NO_MODELS)
