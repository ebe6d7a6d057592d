"""A run's log: what a listener hears, as lines with their time in the run's folder."""

from typing import Any

from macro_routing.runs.folder import RunFolder
from macro_routing.runs.progress import Listener, RoundReport, RunPlan, describe_round


class RunLog(Listener):
    """Writes ``log.txt``."""

    def __init__(self, place: RunFolder) -> None:
        """Lines are added to those of earlier processes."""
        self._place = place

    def on_message(self, text: str) -> None:
        """As it is."""
        self._place.log(text)

    def on_plan(self, plan: RunPlan) -> None:
        """Where the process begins."""
        self._place.log(f"begins or goes on: {plan.task} ({plan.mode}) on {plan.model}")

    def on_round(self, report: RoundReport) -> None:
        """A round in a line."""
        self._place.log(f"{describe_round(report)}; {report.seconds:.1f} s")

    def on_stage(self, name: str, outcomes: int) -> None:
        """What begins."""
        self._place.log(f"{name}: at most {outcomes} evaluations")

    def on_result(self, result: Any) -> None:
        """The verdict."""
        self._place.log(result.verdict)
