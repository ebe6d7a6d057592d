"""Mixtures against their controls, end to end on a tiny model."""

import argparse
import json

from experiments.kept_searches import read_correct, run_missing
from experiments.mixture_quality import (
    BEST_CONTROL,
    COMPARED,
    CONTROLS,
    FITTED,
    RETURNED,
    SINGLE,
    STANDARD,
    list_missing,
    make_rows,
    make_summary_rows,
)
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
    (row,) = make_rows(arguments.kept)
    assert row["seeds"] == 1
    assert len(make_summary_rows(arguments.kept)) == len(COMPARED)
