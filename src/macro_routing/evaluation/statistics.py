"""Whether a difference is real: one comparison, many benchmarks, the best of many; and what data can show at all.

Everything is exact or resampled with a named generator. The procedure over benchmarks is the paper's
(specification §6, "significance").
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from macro_routing.errors import SettingsError

Floats = NDArray[np.float64]
_LEVEL = 0.95
"""Confidence level of all intervals."""


@dataclass(frozen=True)
class PairedComparison:
    """Two routes on the same examples."""

    n: int
    """Number of examples."""
    baseline: float
    """Accuracy of the first, from 0 to 1."""
    routed: float
    """Accuracy of the second, from 0 to 1."""
    fixed: int
    """Number of examples that only the second answers correctly."""
    broken: int
    """Number of examples that only the first answers correctly."""
    low: float
    """Lower end of the 95 % interval of the difference, as a share."""
    high: float
    """Upper end of that interval."""
    p_value: float
    """Two-sided exact McNemar test."""

    @property
    def difference(self) -> float:
        """Gain in accuracy, as a share; times 100 it is in points."""
        return self.routed - self.baseline


def compare_paired(
    baseline: ArrayLike, routed: ArrayLike, *, seed: int = 0, resamples: int = 10_000, is_same_route: bool = False
) -> PairedComparison:
    """Compare two routes by their outcomes on the same examples, in the same order.

    Where no outcome differs, resampling shows no difference either; other examples may. Then the interval is that of
    examples on which the two differ, none of ``n``; ``is_same_route``: they cannot differ.
    """
    first, second = _check_paired_outcomes(baseline, routed)
    fixed = int((second > first).sum())
    broken = int((second < first).sum())
    if fixed or broken or is_same_route:
        low, high = paired_bootstrap_interval(first, second, seed=seed, resamples=resamples)
    else:
        high = 1 - ((1 - _LEVEL) / 2) ** (1 / len(first))
        low = -high
    return PairedComparison(
        len(first), float(first.mean()), float(second.mean()), fixed, broken, low, high, mcnemar_p_value(fixed, broken)
    )


def paired_bootstrap_interval(
    baseline: ArrayLike, routed: ArrayLike, *, seed: int = 0, resamples: int = 10_000
) -> tuple[float, float]:
    """Percentile interval of the mean paired difference, examples resampled with replacement."""
    first, second = _check_paired_outcomes(baseline, routed)
    # Only counts of the distinct differences matter, so resampling is multinomial: fast for any number of examples.
    values, counts = np.unique(second - first, return_counts=True)
    rng = np.random.default_rng(seed)
    return percentile_interval(rng.multinomial(len(first), counts / counts.sum(), size=resamples) @ values / len(first))


def mcnemar_p_value(fixed: int, broken: int) -> float:
    """Two-sided exact McNemar p-value: are the discordant examples split like coin flips?"""
    return float(min(1.0, 2 * scipy.stats.binom.cdf(min(fixed, broken), fixed + broken, 0.5)))


def wilson_interval(accuracy: float, n: int) -> tuple[float, float]:
    """Wilson's score interval of an accuracy on ``n`` examples; also valid at 0 and 1."""
    interval = scipy.stats.binomtest(round(accuracy * n), n).proportion_ci(_LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


# --- many benchmarks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SignificanceOverBenchmarks:
    """Seed-averaged differences over benchmarks, as the paper reports them."""

    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int
    p_value: float
    """One-sided Wilcoxon signed-rank, zeros dropped, exact null."""


def bootstrap_gain_over_benchmarks(
    differences: ArrayLike, *, seed: int = 0, resamples: int = 100_000
) -> SignificanceOverBenchmarks:
    """The paper's procedure for one model: one difference per benchmark, benchmarks resampled as clusters."""
    values = np.round(np.asarray(differences, dtype=np.float64), 9)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all():
        raise SettingsError("significance needs one finite difference per benchmark")
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
    wins, ties, losses = (int(mask.sum()) for mask in (values > 0, values == 0, values < 0))
    return SignificanceOverBenchmarks(
        float(values.mean()), *percentile_interval(means), wins, ties, losses, wilcoxon_p_value(values)
    )


def wilcoxon_p_value(differences: ArrayLike) -> float:
    """Exact one-sided Wilcoxon signed-rank p-value for "greater"; zeros dropped, ties share their mean rank.

    scipy's exact null distribution holds without ties only.
    """
    values = np.asarray(differences, dtype=np.float64)
    values = values[values != 0]
    if len(values) == 0:
        return 1.0
    doubled = np.rint(2 * scipy.stats.rankdata(np.abs(values))).astype(
        int
    )  # twice the mid-ranks, so that they are integers
    observed = int(doubled[values > 0].sum())
    # Share of the sign patterns that give each possible sum of positive ranks.
    shares = np.zeros(int(doubled.sum()) + 1)
    shares[0] = 1
    largest = 0
    for rank in doubled:
        without_rank = shares[: largest + 1].copy()
        largest += rank
        shares[rank : largest + 1] += without_rank
        shares[: largest + 1] /= 2
    return float(shares[observed:].sum())


def holm_correction(p_values: Sequence[float]) -> list[float]:
    """P-values after Holm's step-down correction, in the given order; scipy does not have it."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, np.arange(len(values), 0, -1) * values[order]))
    return [float(p_value) for p_value in corrected]


# --- the best of many ---------------------------------------------------------------------------------------------


def best_of_many_p_value(
    baseline: ArrayLike, candidates: ArrayLike, *, seed: int = 0, resamples: int = 10_000
) -> float:
    """P-value of the best candidate's gain when it was picked as the best on the same data.

    Under the null hypothesis the sign of every example's differences is a coin flip, the same one for all candidates,
    since they share the example; the best mean difference of flipped data shows what chance alone gives.
    """
    first = np.asarray(baseline, dtype=np.float64)
    others = np.atleast_2d(np.asarray(candidates, dtype=np.float64))
    if others.shape[1] != len(first):
        raise SettingsError(f"candidates have {others.shape[1]} outcomes, the baseline has {len(first)}")
    if len(first) == 0:
        raise SettingsError("the best of many needs outcomes to compare")
    differences = others - first
    # In units of each candidate's own spread, which flips do not change: a candidate that differs on many examples, as
    # harmful ones do, must not raise the bar for one that differs on few.
    spread = np.sqrt((differences**2).sum(axis=1, keepdims=True))
    scaled = np.divide(differences, spread, out=np.zeros_like(differences), where=spread > 0)
    observed = scaled.sum(axis=1).max()
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1.0, 1.0], size=(resamples, len(first)))
    flipped = (signs @ scaled.T).max(axis=1)
    return float((1 + (flipped >= observed - 1e-12).sum()) / (1 + resamples))


# --- several tasks and seeds ---------------------------------------------------------------------------------------

Differences = Mapping[str, Sequence[float]]
"""By example: its differences, one for each seed that used it."""


@dataclass(frozen=True)
class TaskMeanDifference:
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
) -> TaskMeanDifference:
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
        nonzero = sums[sums != 0]  # only examples with a difference need a sign
        flipped += rng.choice([-1.0, 1.0], size=(resamples, len(nonzero))) @ nonzero / counts.sum()
    as_far = (np.abs(flipped) >= abs(observed) - 1e-12).sum()
    return TaskMeanDifference(
        sum(map(len, tasks)),
        observed / len(tasks),
        *percentile_interval(draws / len(tasks)),
        float((1 + as_far) / (1 + resamples)),
    )


def bootstrap_means(sums: Floats, counts: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """Mean differences of resampled examples, from each example's sum and number of differences.

    Examples that are equal in both are grouped, so thousands of them take no longer than a few.
    """
    distinct, frequencies = np.unique(np.stack([sums, counts]), axis=1, return_counts=True)
    drawn = rng.multinomial(len(sums), frequencies / len(sums), size=resamples)
    return np.asarray((drawn @ distinct[0]) / (drawn @ distinct[1]))


# --- before a search ----------------------------------------------------------------------------------------------


def smallest_detectable_gain(n: int, discordance: float = 0.2, power: float = 0.8, level: float = 0.05) -> float:
    """The smallest gain that ``n`` paired examples show in ``power`` of all cases, by the exact McNemar test.

    ``discordance`` is the share of examples on which the two routes differ; a gain can never exceed it.
    Returns a value above the discordance (infinity) when no gain could be shown.
    """
    if n < 1 or not 0 < discordance <= 1:
        raise SettingsError(f"n = {n}, discordance = {discordance:g}: n must be at least 1, discordance in (0, 1]")
    return _bisect_detectable_gain(n, discordance, power, level)


@functools.lru_cache(maxsize=256)
def _bisect_detectable_gain(n: int, discordance: float, power: float, level: float) -> float:
    low, high = 0.0, discordance
    if mcnemar_power(n, discordance, high, level) < power:
        return math.inf
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if mcnemar_power(n, discordance, middle, level) >= power else (middle, high)
    return high


def mcnemar_power(n: int, discordance: float, gain: float, level: float = 0.05) -> float:
    """How often the exact test finds a true ``gain`` significant; the discordant count itself is random."""
    discordant, weights, losses = _find_most_significant_losses(n, discordance, level)
    loss_share = (discordance - gain) / (2 * discordance)
    return float(weights @ scipy.stats.binom.cdf(losses, discordant, max(0.0, loss_share)))


@functools.lru_cache(maxsize=64)
def _find_most_significant_losses(n: int, discordance: float, level: float) -> tuple[Floats, Floats, Floats]:
    """Discordant counts, how probable each is, and the most losses that are still significant; -1 where none are."""
    weights = scipy.stats.binom.pmf(np.arange(n + 1), n, discordance)
    discordant = np.flatnonzero(weights > 1e-9)
    losses = scipy.stats.binom.ppf(level / 2, discordant, 0.5)
    losses = np.where(2 * scipy.stats.binom.cdf(losses, discordant, 0.5) <= level, losses, losses - 1)
    return discordant.astype(np.float64), weights[discordant], losses


def percentile_interval(draws: Floats) -> tuple[float, float]:
    """The central interval that holds 95 % of resampled values."""
    low, high = np.percentile(draws, [50 * (1 - _LEVEL), 50 * (1 + _LEVEL)])
    return float(low), float(high)


def _check_paired_outcomes(baseline: ArrayLike, routed: ArrayLike) -> tuple[Floats, Floats]:
    first, second = (np.asarray(values, dtype=np.float64) for values in (baseline, routed))
    if first.shape != second.shape or first.ndim != 1 or len(first) == 0:
        raise SettingsError(f"a paired comparison needs equally many outcomes, got {first.shape} and {second.shape}")
    return first, second
