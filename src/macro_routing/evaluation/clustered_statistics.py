"""Paired differences over several tasks and seeds: examples that recur are one piece of evidence, tasks weigh alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.evaluation.statistics import Floats

Differences = Mapping[str, Sequence[float]]
"""By example: its differences, one for each seed that met it."""


@dataclass(frozen=True)
class PairedDifference:
    """The mean over tasks of the mean difference, with its uncertainty."""

    n: int
    """Different examples."""
    mean: float
    low: float
    """Lower end of the 95 % interval, examples resampled within their tasks."""
    high: float
    p_value: float
    """Two-sided: how often coin flips for the sign of every example's differences give a mean as far from zero."""


def estimate_paired_difference(
    tasks: Sequence[Differences], *, seed: int = 0, resamples: int = 4000
) -> PairedDifference:
    """Estimate the mean difference over tasks, every example being one cluster."""
    if not tasks or not all(tasks):
        raise SettingsError("a paired difference needs examples of every task")
    rng = np.random.default_rng(seed)
    observed, draws, luck = 0.0, np.zeros(resamples), np.zeros(resamples)
    for differences in tasks:
        sums = np.array([sum(values) for values in differences.values()], float)
        counts = np.array([len(values) for values in differences.values()], float)
        observed += float(sums.sum() / counts.sum())
        draws += bootstrap_means(sums, counts, rng, resamples)
        luck += _flipped(sums, rng, resamples) / counts.sum()
    low, high = np.percentile(draws / len(tasks), [2.5, 97.5])
    as_far = (np.abs(luck) >= abs(observed) - 1e-12).sum()
    return PairedDifference(
        sum(map(len, tasks)),
        observed / len(tasks),
        float(low),
        float(high),
        float((1 + as_far) / (1 + resamples)),
    )


def bootstrap_means(sums: Floats, counts: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """Mean differences of resampled examples: each has the sum of its differences, and how many these are.

    Examples that are alike in both need not be told apart, so thousands of them take no longer than a few.
    """
    kinds, often = np.unique(np.stack([sums, counts]), axis=1, return_counts=True)
    drawn = rng.multinomial(len(sums), often / len(sums), size=resamples)
    return np.asarray((drawn @ kinds[0]) / (drawn @ kinds[1]))


def _flipped(sums: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """Sums under coin flips; only examples that differ at all need one."""
    moving = sums[sums != 0]
    return np.asarray(rng.choice([-1.0, 1.0], size=(resamples, len(moving))) @ moving)
