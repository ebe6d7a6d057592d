"""What a run says of itself on standard error."""

import dataclasses
import io
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from macro_routing.cli import progress
from macro_routing.cli.progress import ProgressBarListener, ProgressLinePrinter
from macro_routing.runs.progress import RoundReport, RunPlan

PLAN = RunPlan("model", "task", "direct", "guided", 7, 12, 4, 16, 10, 5, 5, 100, 0.1, "4 rounds of 16 draws")
ROUND = RoundReport(1, 4, 3, 0.5, 0.5, 0, 16, 0.5, 0.2, 0.8, 48, 0, 0.0, 30.0)


@pytest.fixture
def now(monkeypatch):
    """The time, as a list of one value that a test sets."""
    value = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: value[0])
    return value


def test_every_run_has_its_own_clock(now, capsys):
    lines = ProgressLinePrinter(Path("runs/one"))
    for begun, number, left in ((0.0, 1, 4), (1000.0, 3, 2)):  # the second goes on after two rounds
        now[0] = begun
        lines.on_plan(PLAN)
        now[0] = begun + 10  # what is loaded before the search is not its speed
        lines.on_stage("search", left * ROUND.run)
        now[0] += 60
        lines.on_round(dataclasses.replace(ROUND, number=number))
    said = capsys.readouterr().err
    assert "by guided, seed 7: 4 rounds of 16 draws" in said
    assert "about 3.0 min of searching left" in said
    assert "about 60 s of searching left" in said


def test_a_large_round_is_not_taken_for_every_round(now, capsys):
    """The first of four rounds has three quarters of the evaluations."""
    lines = ProgressLinePrinter(Path("runs/one"))
    lines.on_stage("search", 400)
    now[0] = 30
    lines.on_round(dataclasses.replace(ROUND, run=100, known=150, saved=50))
    assert "about 10 s of searching left" in capsys.readouterr().err


def test_the_bar_moves_between_lumps_and_with_scores_of_the_store(now):
    console = Console(file=io.StringIO(), width=120)
    with Progress(console=console, auto_refresh=False) as bar:
        listener = ProgressBarListener(Path("runs/one"), bar)
        listener.on_stage("validation", 100)
        (task,) = bar.tasks
        clock = task.fields["clock"]
        assert clock.describe_time_left() == ""
        now[0] = 10
        listener.on_known(20)
        listener.on_outcomes(20)
        assert task.completed == 40
        assert clock.describe_time_left() == "15 s"
        now[0] = 12
        assert clock.estimate == 48
        assert clock.describe_time_left() == "13 s"
        now[0] = 1000  # a very long lump: the bar never claims to be finished
        assert clock.estimate == 70
        listener.on_outcomes(80)
        assert task.completed == 100
        assert clock.describe_time_left() == "0 s"


def test_the_terminals_bar_says_how_long_it_takes(monkeypatch, now):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.make_progress_listener(Path("runs/one"), []) as listener:
        listener.on_stage("search", 100)
        now[0] = 5
        listener.on_outcomes(50)
    assert "50/100" in terminal.getvalue()
    assert "about 5 s left" in terminal.getvalue()
