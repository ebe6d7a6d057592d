"""Paired differences over several tasks and seeds: each example is one cluster, and all tasks weigh the same."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.evaluation.statistics import Floats, percentile_interval

Differences = Mapping[str, Sequence[float]]
"""By example: its differences, one for each seed that used it."""


@dataclass(frozen=True)
class PairedDifference:
    """The mean over tasks of the mean difference, with its uncertainty."""

    n: int
    """Number of distinct examples."""
    mean: float
    low: float
    """Lower end of the 95 % interval, examples resampled within their tasks."""
    high: float
    p_value: float
    """Two-sided sign-flip test: how often random signs of the examples' differences give a mean as far from zero."""


def estimate_paired_difference(
    tasks: Sequence[Differences], *, seed: int = 0, resamples: int = 4000
) -> PairedDifference:
    """Estimate the mean difference over tasks, with every example as one cluster."""
    if not tasks or not all(tasks):
        raise SettingsError("a paired difference needs examples of every task")
    rng = np.random.default_rng(seed)
    observed, draws, flipped = 0.0, np.zeros(resamples), np.zeros(resamples)
    for differences in tasks:
        sums = np.array([sum(values) for values in differences.values()], float)
        counts = np.array([len(values) for values in differences.values()], float)
        observed += float(sums.sum() / counts.sum())
        draws += bootstrap_means(sums, counts, rng, resamples)
        flipped += _flip_signs(sums, rng, resamples) / counts.sum()
    as_far = (np.abs(flipped) >= abs(observed) - 1e-12).sum()
    return PairedDifference(
        sum(map(len, tasks)),
        observed / len(tasks),
        *percentile_interval(draws / len(tasks)),
        float((1 + as_far) / (1 + resamples)),
    )


def bootstrap_means(sums: Floats, counts: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """Mean differences of resampled examples, from each example's sum and number of differences.

    Examples that are equal in both are grouped, so thousands of them take no longer than a few.
    """
    kinds, often = np.unique(np.stack([sums, counts]), axis=1, return_counts=True)
    drawn = rng.multinomial(len(sums), often / len(sums), size=resamples)
    return np.asarray((drawn @ kinds[0]) / (drawn @ kinds[1]))


def _flip_signs(sums: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """Totals under random signs; only examples with a difference need one."""
    nonzero = sums[sums != 0]
    return np.asarray(rng.choice([-1.0, 1.0], size=(resamples, len(nonzero))) @ nonzero)
