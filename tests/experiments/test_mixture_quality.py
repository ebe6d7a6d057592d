"""Mixtures against their controls, end to end on a tiny model."""

import argparse
import json
import sys

import pytest

from benchmarks.record import ROOT
from experiments.kept_searches import read_correct, run_missing
from experiments.method_comparison import SEEDS
from experiments.mixture_quality import (
    BEST_CONTROL,
    COMPARED,
    CONTROLS,
    FIRST_MAX_COST,
    FITTED,
    KEPT,
    MAX_COST,
    RETURNED,
    SINGLE,
    STANDARD,
    TASKS,
    list_missing,
    main,
    make_rows,
    make_summary_rows,
    read_round,
    run_or_resume,
)
from macro_routing.errors import RunError
from macro_routing.models import load_model
from macro_routing.runs import make_run_config
from macro_routing.runs.folder import RUN
from tests.runs.small import small_folder, write_task_file


def test_a_search_and_its_controls_are_kept_and_tabulated(tmp_path):
    model = str(small_folder(tmp_path / "model"))
    task = str(write_task_file(tmp_path / "own.jsonl", 120))
    config = tmp_path / "own.toml"
    config.write_text(f'file = "{task}"\nkind = "choice"\nquestion = "q"\nanswer = "a"\nchoices = "c"\n')
    arguments = argparse.Namespace(
        model=model,
        amateur=model,
        runs=tmp_path,
        kept=tmp_path / "kept.jsonl",
        data_dir=None,
        budget=1500,
        max_cost=3.0,
        minutes=20.0,
        only=str(config),
        methods=None,
        seeds={"1"},
        share=None,
    )
    for _ in range(2):  # nothing is run twice
        run_missing(arguments, RETURNED, list_missing)
    (line,) = [json.loads(text) for text in arguments.kept.read_text().splitlines()]
    assert set(line["right"]) == {STANDARD, SINGLE, RETURNED, FITTED, BEST_CONTROL, *CONTROLS, "PMI and mixture"}
    assert all(len(read_correct(line, name)) == len(line["examples"]) for name in line["right"])
    assert line["routes"][BEST_CONTROL] in CONTROLS
    assert (line["max_cost"], line["budget"]) == (3.0, 1500)
    (row,) = make_rows([line])
    assert row["seeds"] == 1
    assert len(make_summary_rows([line])) == len(COMPARED)
    # A search of another round is another search, in another folder.
    frozen = load_model(model)
    assert not list(list_missing(arguments, frozen))
    arguments.max_cost = 2.0
    assert len(list(list_missing(arguments, frozen))) == 1
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert "model-own-1-cost-3" in folders
    # A folder is taken only for the settings that its run began with.
    folder = tmp_path / "model-own-1-cost-3"
    given = make_run_config(**json.loads((folder / RUN).read_text())["config"]["given"])
    store = tmp_path / "model-own-1-cost-3.sqlite"
    assert str(run_or_resume(given, folder, frozen, store).best_route) == line["routes"][RETURNED]
    with pytest.raises(RunError, match="other settings"):
        run_or_resume(given.with_changes(decision={"max_cost": 2.0}), folder, frozen, store)


def test_every_round_is_the_record_of_its_own_table(monkeypatch):
    lines = read_round(KEPT, FIRST_MAX_COST)
    assert {line["commit"] for line in lines} == {"ce7f9ff"}
    arguments = argparse.Namespace(kept=KEPT, max_cost=9, only=None, seeds=None, methods=None)
    frozen = argparse.Namespace(name=lines[0]["model"])
    assert len(list(list_missing(arguments, frozen))) == len(TASKS) * len(SEEDS)
    table = json.loads((ROOT / "docs" / "data" / "mixture_quality.json").read_text())
    assert table["config"]["max_cost"] == FIRST_MAX_COST
    assert make_rows(lines) == table["results"]
    second = json.loads((ROOT / "docs" / "data" / "mixture_quality_second.json").read_text())
    assert make_rows(read_round(KEPT, MAX_COST)) == second["results"]
    monkeypatch.setattr(sys, "argv", ["mixture_quality", "--max-cost", "9", "--write", "nothing.json"])
    with pytest.raises(SystemExit, match="no search with --max-cost 9 is kept"):
        main()
