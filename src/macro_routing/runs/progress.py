"""Events of a run (plan, stages, rounds, result), and the listeners that get them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from macro_routing.runs.folder import RunFolder


@dataclass(frozen=True)
class RunPlan:
    """What a run is going to do."""

    model: str
    task: str
    mode: str
    method: str
    seed: int
    layers: int
    rounds: int
    draws: int
    training: int
    validation: int
    test: int
    max_evaluations: int
    """Route × example outcomes if nothing repeats, races or is known."""
    detectable: float
    """Smallest gain that the test set can show, as a share."""
    schedule: str = ""
    """The rounds in words."""
    holdout: int = 0
    """Training examples kept for the final decision."""
    objective: str = ""
    """What the final decision asks of a route; empty where validation alone selects."""
    decision: str = ""
    """What the final decision can show with the examples it has; empty where validation alone selects."""


@dataclass(frozen=True)
class RoundReport:
    """One finished round."""

    number: int
    """From 1."""
    rounds: int
    examples: int
    best: float
    """Accuracy of the best draw."""
    median: float | None
    """Median accuracy of the draws that were scored to the end; None when none was."""
    stopped: int
    """Draws that were given up; they are in no median."""
    different: int
    """Different routes among the draws."""
    standard: float
    """Accuracy of the standard pass on the same examples."""
    standard_low: float
    standard_high: float
    run: int
    """Evaluations computed in this round."""
    saved: int
    """Evaluations that were repeated or stopped; in rounds of earlier versions also those that were known."""
    truncated_share: float
    """Share of truncated answers."""
    seconds: float
    asked: int = 0
    """Evaluations asked for, known or not: what a budget is counted in."""
    work: float = 0.0
    """Layer applications × tokens of the answers looked at, of each route once."""
    known: int = 0
    """Evaluations that the score store held, as after a stop."""
    draws: int = 0
    """Routes proposed; 0 in rounds of earlier versions."""
    purpose: str = ""
    """What the round was for, where it was not to find routes."""


def describe_round(report: RoundReport) -> str:
    """A round in a line."""
    median = "none complete" if report.median is None else f"median {100 * report.median:.1f}"
    purpose = f" ({report.purpose})" if report.purpose else ""
    known = f", {report.known} known" if report.known else ""
    truncated = f", truncated {100 * report.truncated_share:.0f} %" if report.truncated_share else ""
    return (
        f"round {report.number}/{report.rounds}{purpose}: best {100 * report.best:.1f}, {median}, standard"
        f" {100 * report.standard:.1f} ({100 * report.standard_low:.0f} to {100 * report.standard_high:.0f}) on"
        f" {report.examples} examples; {report.different} different routes, {report.stopped} stopped;"
        f" {report.run} evaluations run{known}, {report.saved} saved{truncated}"
    )


class Listener:
    """Gets a run's events; every method may be left as it is."""

    def on_message(self, text: str) -> None:
        """Something a person may want to know."""

    def on_plan(self, plan: RunPlan) -> None:
        """The run begins or goes on."""

    def on_outcomes(self, count: int) -> None:
        """This many outcomes were just computed."""

    def on_known(self, count: int) -> None:
        """This many outcomes need not be computed."""

    def on_round(self, report: RoundReport) -> None:
        """A round is finished and kept."""

    def on_stage(self, name: str, evaluations: int) -> None:
        """A stage (search, validation, guard, test) begins, with at most this many evaluations."""

    def on_result(self, result: Any) -> None:
        """The run is finished."""


class Listeners(Listener):
    """Several listeners as one; each gets every event, in order."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        """Replace every event's method by one that calls those of ``listeners``."""
        for name in [name for name in vars(Listener) if name.startswith("on_")]:
            setattr(self, name, partial(_notify_all_listeners, [getattr(listener, name) for listener in listeners]))


def _notify_all_listeners(methods: Sequence[Callable[..., None]], *arguments: Any) -> None:
    for method in methods:
        method(*arguments)


class RunLog(Listener):
    """Writes what happens into the ``log.txt`` of a run's folder, with the time of each line."""

    def __init__(self, folder: RunFolder) -> None:
        """Lines are added to those of earlier processes."""
        self.on_message = folder.log  # type: ignore[method-assign]

    def on_plan(self, plan: RunPlan) -> None:
        """Where the process begins."""
        self.on_message(f"begins or goes on: {plan.task} ({plan.mode}) on {plan.model}")
        if plan.decision:
            self.on_message(f"decision: {plan.decision}")

    def on_round(self, report: RoundReport) -> None:
        """A round in a line."""
        self.on_message(f"{describe_round(report)}; {report.seconds:.1f} s")

    def on_stage(self, name: str, evaluations: int) -> None:
        """What begins."""
        self.on_message(f"{name}: at most {evaluations} evaluations")

    def on_result(self, result: Any) -> None:
        """The verdict."""
        self.on_message(result.verdict)
