"""What a run says of itself on standard error."""

import dataclasses
from pathlib import Path

from macro_routing.cli import progress
from macro_routing.cli.progress import ProgressLinePrinter
from macro_routing.runs.progress import RoundReport, RunPlan

PLAN = RunPlan("model", "task", "direct", "guided", 7, 12, 4, 16, 10, 5, 5, 100, 0.1, "4 rounds of 16 draws")
ROUND = RoundReport(1, 4, 3, 0.5, 0.5, 0, 16, 0.5, 0.2, 0.8, 48, 0, 0.0, 30.0)


def test_every_run_has_its_own_clock(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    lines = ProgressLinePrinter(Path("runs/one"))
    for begun, first in ((0.0, 1), (1000.0, 3)):  # the second goes on after two rounds
        now[0] = begun
        lines.on_plan(PLAN)
        now[0] = begun + 60
        lines.on_round(dataclasses.replace(ROUND, number=first))
    said = capsys.readouterr().err
    assert "by guided, seed 7: 4 rounds of 16 draws" in said
    assert "about 3.0 min of searching left" in said
    assert "about 1.0 min of searching left" in said
