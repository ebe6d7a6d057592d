"""What methods add beyond the best control of mixtures, on the test examples of a comparison."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from macro_routing.evaluation.statistics import estimate_paired_difference, holm_correction
from macro_routing.runs.comparison_results import MethodRun
from macro_routing.runs.methods import CONTROL, METHODS, ROUTE_SEARCH
from macro_routing.runs.methods import STANDARD as STANDARD_METHOD


@dataclass(frozen=True)
class BeyondControl:
    """A method against the best control of each seed, on the same test examples."""

    name: str
    """Of the method, as it is shown."""
    controls: tuple[str, ...]
    """The best control by its accuracy on training examples, by seed."""
    difference: float
    low: float
    """Lower end of the 95 % interval, examples resampled; seeds that share an example count it once."""
    high: float
    p_value: float
    """Two-sided sign-flip test."""
    p_holm: float
    """Corrected for all methods that are compared with controls."""


def compare_with_best_control(runs: Sequence[MethodRun]) -> list[BeyondControl]:
    """Every search for routes against the best control, over the seeds that have both; empty without controls."""
    best = {seed: control for seed in {run.seed for run in runs} if (control := _find_best_control(runs, seed))}
    searches = [run for run in runs if METHODS[run.method].kind == ROUTE_SEARCH and run.method != STANDARD_METHOD]
    rows = []
    for method in dict.fromkeys(run.method for run in searches):
        pairs = [(run, best[run.seed]) for run in searches if run.method == method and run.seed in best]
        if pairs:
            rows.append(_compare_pairs(METHODS[method].title, pairs))
    corrected = holm_correction([row.p_value for row in rows])
    return [dataclasses.replace(row, p_holm=p_value) for row, p_value in zip(rows, corrected, strict=True)]


def _find_best_control(runs: Sequence[MethodRun], seed: int) -> MethodRun | None:
    """The seed's control with the highest training accuracy; ties go to the earlier method."""
    accuracies = {
        index: run.result.training_accuracy
        for index, run in enumerate(runs)
        if run.seed == seed and METHODS[run.method].kind == CONTROL and run.result.training_accuracy is not None
    }
    return runs[max(accuracies, key=lambda index: accuracies[index])] if accuracies else None


def _compare_pairs(name: str, pairs: Sequence[tuple[MethodRun, MethodRun]]) -> BeyondControl:
    differences: dict[str, list[float]] = {}
    for run, control in pairs:
        controlled = control.right[METHODS[control.method].title]
        for example, correct in run.right[METHODS[run.method].title].items():
            differences.setdefault(example, []).append(float(correct) - float(controlled[example]))
    paired = estimate_paired_difference([differences])
    controls = tuple(METHODS[control.method].title for _, control in pairs)
    return BeyondControl(name, controls, paired.mean, paired.low, paired.high, paired.p_value, paired.p_value)


def describe_controls(row: BeyondControl) -> str:
    """The best controls, with the number of seeds for which each was."""
    counts = {name: row.controls.count(name) for name in dict.fromkeys(row.controls)}
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} ({count} of {len(row.controls)} seeds)" for name, count in counts.items())
