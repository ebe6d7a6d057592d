"""How a run shows itself: a live bar on a terminal, a line per round elsewhere.

On request rounds also go as scalars to tensorboard, Weights & Biases or trackio, where they are installed.
"""

from __future__ import annotations

import copy
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macro_routing.cli.console import escape_control_characters, print_progress_message
from macro_routing.cli.stage_clock import StageClock
from macro_routing.errors import SettingsError
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.progress import Listener, Listeners, RoundReport, RunPlan, describe_round
from macro_routing.settings import check_choice

if TYPE_CHECKING:
    from macro_routing.runs import RunResult

_SILENCE = 60
"""Seconds after which a quiet run says that it is still running."""


@contextmanager
def make_progress_listener(folder: Path, log_to: Sequence[str]) -> Iterator[Listener]:
    """A listener for the terminal or a pipe, and the loggers asked for."""
    loggers = [make_run_logger(name, folder) for name in log_to]
    if not sys.stderr.isatty():
        yield Listeners([ProgressLinePrinter(folder), *loggers])
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class SteadyBarColumn(BarColumn):
        def render(self, task: Any) -> Any:
            """Evaluations come many at once; the bar moves on in between."""
            shown = copy.copy(task)
            shown.completed = task.fields["clock"].estimate
            return super().render(shown)

    class TimeLeftColumn(TextColumn):
        def render(self, task: Any) -> Any:
            left = task.fields["clock"].describe_time_left()
            return Text(f"about {left} left" if left else "estimating the time")

    columns = [TextColumn("{task.description}"), SteadyBarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), TimeLeftColumn(""), console=Console(stderr=True)) as bar:
        yield Listeners([ProgressBarListener(folder, bar), *loggers])


def warn_of_modified_run_files(run: Path) -> None:
    """Say which files of a finished run are no longer what the run left."""
    for name in RunFolder(run).list_files_changed_since_finish():
        print_progress_message(f"{run / name} was changed after the run had ended: it is not what the run found")


class ProgressLinePrinter(Listener):
    """One line per event, on standard error."""

    def __init__(self, folder: Path) -> None:
        """Nothing said yet."""
        self._folder = folder
        self._last_line = time.monotonic()
        self._clock = StageClock()
        self._of_rounds = 0
        """Evaluations of the stage's finished rounds, those that were saved among them."""

    def on_outcomes(self, count: int) -> None:
        """Say now and then that something is happening."""
        self._advance_to(self._clock.done + count)
        if time.monotonic() - self._last_line > _SILENCE:
            left = self._clock.describe_time_left()
            self.on_message(
                f"{self._clock.done} of at most {self._clock.total} evaluations"
                + (f", about {left} left" if left else "")
            )

    def on_known(self, count: int) -> None:
        """Count what the store had as done."""
        self._advance_to(self._clock.done + count)

    def on_message(self, text: str) -> None:
        """Print it."""
        print_progress_message(escape_control_characters(text))
        self._last_line = time.monotonic()

    def on_plan(self, plan: RunPlan) -> None:
        """Print what is going to be done."""
        self.on_message(
            f"{plan.task} ({plan.mode}) on {plan.model} by {plan.method}, seed {plan.seed}:"
            f" {plan.schedule},"
            f" {plan.training}/{plan.validation}/{plan.test} examples, in {self._folder}"
        )
        if plan.decision:
            self.on_message(f"objective: {plan.objective}; {plan.decision}")

    def on_round(self, report: RoundReport) -> None:
        """Print what a round showed, and how long the rest will take."""
        self._of_rounds += report.run + report.known + report.saved
        self._advance_to(self._of_rounds)
        left = self._clock.describe_time_left()
        self.on_message(describe_round(report) + (f"; about {left} of searching left" if left else ""))

    def on_stage(self, name: str, evaluations: int) -> None:
        """Print what begins; every stage, and every run of a comparison, has its own clock."""
        self._clock, self._of_rounds = StageClock(evaluations), 0
        if name != "search":
            self.on_message(f"{name}: at most {evaluations} evaluations")

    def _advance_to(self, done: int) -> None:
        self._clock.advance_to(done)


class ProgressBarListener(ProgressLinePrinter):
    """The same above a bar that moves."""

    def __init__(self, folder: Path, bar: Any) -> None:
        """``bar`` is rich's progress display."""
        super().__init__(folder)
        self._bar = bar

    def on_message(self, text: str) -> None:
        """Print it above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)
        self._last_line = time.monotonic()

    def on_stage(self, name: str, evaluations: int) -> None:
        """A new bar."""
        self._clock, self._of_rounds = StageClock(evaluations), 0
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        self._bar.add_task(name, total=evaluations, clock=self._clock)

    def _advance_to(self, done: int) -> None:
        super()._advance_to(done)
        for task in self._bar.task_ids:
            self._bar.update(task, completed=self._clock.done)


# --- loggers ----------------------------------------------------------------------------------------------------------

LOGGERS = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "trackio": "trackio"}
"""Name → module that must be there."""
_SCALARS = ("best", "standard", "different", "stopped", "run", "saved", "truncated_share", "seconds", "median")


def make_run_logger(name: str, folder: Path) -> Listener:
    """The logger of that name, writing about the run in ``folder``."""
    check_choice("log_to", name, tuple(LOGGERS))
    try:
        module: Any = importlib.import_module(LOGGERS[name])
    except ImportError:
        raise SettingsError(f"logging to {name} needs it installed: pip install {name}") from None
    if name == "tensorboard":
        return TensorBoardLogger(lambda: module.SummaryWriter(str(folder / "tensorboard")))
    return TrackerLogger(module, folder.name)


def _collect_round_scalars(report: RoundReport) -> dict[str, float]:
    """What a round is worth plotting; a median only where there is one."""
    values = {name: getattr(report, name) for name in _SCALARS}
    return {name: value for name, value in values.items() if value is not None}


class TensorBoardLogger(Listener):
    """Rounds as scalars, the verdict as text."""

    def __init__(self, open_writer: Callable[[], Any]) -> None:
        """``open_writer`` makes torch's SummaryWriter and its folder, so it is called when the run has its own."""
        self._open_writer = open_writer
        self._writer: Any = None

    def on_plan(self, plan: RunPlan) -> None:
        """Begin."""
        self._writer = self._open_writer()
        self._writer.add_text("plan", f"{plan.task} on {plan.model}")

    def on_round(self, report: RoundReport) -> None:
        """One point per curve."""
        for name, value in _collect_round_scalars(report).items():
            self._writer.add_scalar(f"search/{name}", value, report.number)
        self._writer.flush()

    def on_result(self, result: RunResult) -> None:
        """The verdict."""
        self._writer.add_text("verdict", result.verdict)
        self._writer.close()


class TrackerLogger(Listener):
    """wandb and trackio, which share the three calls used here."""

    def __init__(self, module: Any, name: str) -> None:
        """Begins a run of the tracker."""
        self._module = module
        module.init(project="macro", name=name)

    def on_round(self, report: RoundReport) -> None:
        """One step."""
        self._module.log({f"search/{name}": value for name, value in _collect_round_scalars(report).items()})

    def on_result(self, result: RunResult) -> None:
        """The test's figures, and the end."""
        self._module.log({"test/difference": result.comparison.difference, "test/p_value": result.comparison.p_value})
        self._module.finish()
