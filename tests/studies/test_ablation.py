"""The ablation study, end to end on a tiny model."""

import json

import numpy as np
import pytest

from macro_routing.runs import RunFolder
from macro_routing.runs.result import TOP_1
from macro_routing.studies.ablation import run_state_factor_ablation
from macro_routing.studies.settings import (
    AblationSettings,
)
from tests.studies.contexts import check_written_files, small_context


def test_ablation(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_state_factor_ablation(context, AblationSettings(("small",), (1,)))
    rows = {row["variant"]: row for row in found.table.rows}
    assert [row["phase"] for row in found.table.rows] == [True, False, True, True, True, True, None]
    assert found.comparison_count == 5
    assert found.headline.startswith("Over 1 seed, variants that are worse than the full state: ")
    assert "small n = 20" in found.table.notes[0]
    # The numbers are those of the runs.
    run = RunFolder.open(context.folder.path / "runs" / "no_phase-small-1")
    assert run.read_json("run.json")["config"]["resolved"]["searcher"]["space"]["phase"] is False
    results = [
        json.loads((context.folder.path / "runs" / f"no_phase-{task}-{seed}" / "result.json").read_text())
        for task, seed in [("small", 1)]
    ]
    mean = np.mean([one["variants"][0]["correct"] / one["variants"][0]["n"] for one in results])
    assert rows["no phase"]["accuracy"] == pytest.approx(mean)
    assert rows["no phase"]["difference"] == pytest.approx(mean - rows["full state"]["accuracy"])
    assert any(TOP_1.removeprefix("MACRO ").strip("()") in name for name in rows)
    check_written_files(context, found)
    again = run_state_factor_ablation(small_context(tmp_path, frozen, minutes=0), AblationSettings(("small",), (1,)))
    assert again.table.rows == found.table.rows
