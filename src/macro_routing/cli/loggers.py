"""Optional loggers: rounds as scalars to tensorboard, Weights & Biases or trackio, where they are installed."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from macro_routing.errors import SettingsError
from macro_routing.runs.progress import Listener, RoundReport, RunPlan
from macro_routing.runs.result import RunResult
from macro_routing.settings import check_choice

LOGGERS = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "trackio": "trackio"}
"""Name → module that must be there."""


def make_logger(name: str, folder: Path) -> Listener:
    """The logger of that name, writing about the run in ``folder``."""
    check_choice("log_to", name, tuple(LOGGERS))
    try:
        module: Any = importlib.import_module(LOGGERS[name])
    except ImportError:
        raise SettingsError(f"logging to {name} needs it installed: pip install {name}") from None
    if name == "tensorboard":
        return TensorBoard(lambda: module.SummaryWriter(str(folder / "tensorboard")))
    return Tracker(module, folder.name)


def round_scalars(report: RoundReport) -> dict[str, float]:
    """What a round is worth plotting."""
    found = {
        "best": report.best,
        "standard": report.standard,
        "different": report.different,
        "stopped": report.stopped,
        "run": report.run,
        "saved": report.saved,
        "cut_off": report.cut_off,
        "seconds": report.seconds,
    }
    return found if report.median is None else {**found, "median": report.median}


class TensorBoard(Listener):
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
        for name, value in round_scalars(report).items():
            self._writer.add_scalar(f"search/{name}", value, report.number)
        self._writer.flush()

    def on_result(self, result: RunResult) -> None:
        """The verdict."""
        self._writer.add_text("verdict", result.verdict)
        self._writer.close()


class Tracker(Listener):
    """wandb and trackio, which share the three calls used here."""

    def __init__(self, module: Any, name: str) -> None:
        """Begins a run of the tracker."""
        self._module = module
        module.init(project="macro", name=name)

    def on_round(self, report: RoundReport) -> None:
        """One step."""
        self._module.log({f"search/{name}": value for name, value in round_scalars(report).items()})

    def on_result(self, result: RunResult) -> None:
        """The test's figures, and the end."""
        self._module.log({"test/difference": result.comparison.difference, "test/p_value": result.comparison.p_value})
        self._module.finish()
