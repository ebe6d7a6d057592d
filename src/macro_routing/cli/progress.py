"""How a run shows itself: a live bar on a terminal, a line per round elsewhere; loggers on request."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from macro_routing.cli.console import escape_control_characters
from macro_routing.cli.loggers import make_logger
from macro_routing.runs.progress import Listener, Listeners, RoundReport, RunPlan, describe_round

_SILENCE = 60
"""Seconds after which a quiet run says that it is still running."""


@contextmanager
def make_listener(folder: Path, log_to: Sequence[str]) -> Iterator[Listener]:
    """A listener for the terminal or a pipe, and the loggers asked for."""
    loggers = [make_logger(name, folder) for name in log_to]
    if not sys.stderr.isatty():
        yield Listeners([LineListener(folder), *loggers])
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    times = [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False)]
    with Progress(*columns, *times, console=Console(stderr=True)) as bar:
        yield Listeners([ProgressBarListener(folder, bar), *loggers])


class LineListener(Listener):
    """One line per event, on standard error."""

    def __init__(self, folder: Path) -> None:
        """Nothing said yet."""
        self._folder = folder
        self._started = self._said = time.monotonic()
        self._rounds = 0
        self._outcomes = 0

    def _print_line(self, text: str) -> None:
        print(f"macro: {escape_control_characters(text)}", file=sys.stderr, flush=True)
        self._said = time.monotonic()

    def on_outcomes(self, count: int) -> None:
        """Say now and then that something is happening."""
        self._outcomes += count
        if time.monotonic() - self._said > _SILENCE:
            self._print_line(f"{self._outcomes} evaluations so far")

    def on_message(self, text: str) -> None:
        """Say it."""
        self._print_line(text)

    def on_plan(self, plan: RunPlan) -> None:
        """Print what is going to be done; a comparison has many runs, each with its own clock."""
        self._started, self._rounds = time.monotonic(), 0
        self._print_line(
            f"{plan.task} ({plan.mode}) on {plan.model} by {plan.method}, seed {plan.seed}:"
            f" {plan.rounds} {'round' if plan.rounds == 1 else 'rounds'} of {plan.draws} draws,"
            f" {plan.training}/{plan.validation}/{plan.test} examples, in {self._folder}"
        )

    def on_round(self, report: RoundReport) -> None:
        """Print what a round showed, and how long the rest will take."""
        self._rounds += 1  # one that goes on has not paid for those before
        elapsed = time.monotonic() - self._started
        left = elapsed / self._rounds * (report.rounds - report.number)
        self._print_line(f"{describe_round(report)}; about {left / 60:.1f} min of searching left")

    def on_stage(self, name: str, outcomes: int) -> None:
        """Print what begins."""
        if name != "search":
            self._print_line(f"{name}: at most {outcomes} evaluations")


class ProgressBarListener(LineListener):
    """The same above a bar that moves."""

    def __init__(self, folder: Path, bar: Any) -> None:
        """``bar`` is rich's progress display."""
        super().__init__(folder)
        self._bar = bar
        self._stage: Any = None
        self._planned = 0
        self._seen = 0

    def _print_line(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False)

    def on_stage(self, name: str, outcomes: int) -> None:
        """A new bar."""
        if self._stage is not None:
            self._bar.remove_task(self._stage)
        self._stage, self._planned, self._seen = self._bar.add_task(name, total=outcomes), outcomes, 0

    def on_outcomes(self, count: int) -> None:
        """Move on."""
        if self._stage is not None:
            self._bar.advance(self._stage, count)

    def on_round(self, report: RoundReport) -> None:
        """Count what was saved as done."""
        self._print_line(describe_round(report))
        self._seen += report.run + report.saved
        if self._stage is not None:
            self._bar.update(self._stage, completed=min(self._seen, self._planned))
