"""Paired differences over tasks and seeds, compared with plain enumeration."""

import itertools

import numpy as np
import pytest

from macro_routing.errors import SettingsError
from macro_routing.evaluation.statistics import bootstrap_means, estimate_paired_difference


def test_the_mean_weighs_tasks_alike():
    large = {f"a{number}": [1.0] for number in range(30)}
    small = {"b0": [0.0], "b1": [0.0]}
    assert estimate_paired_difference([large, small]).mean == pytest.approx(0.5)
    assert estimate_paired_difference([large, small]).n == 32


def test_an_example_met_by_several_seeds_is_one_piece_of_evidence():
    once = {f"e{number}": [float(number % 3 == 0)] for number in range(60)}
    thrice = {name: values * 3 for name, values in once.items()}
    first, second = estimate_paired_difference([once]), estimate_paired_difference([thrice])
    assert second.mean == pytest.approx(first.mean)
    assert (second.low, second.high, second.p_value) == pytest.approx((first.low, first.high, first.p_value))


def test_p_is_that_of_all_sign_patterns():
    values = [1.0, 1.0, 1.0, -1.0, 1.0, 0.0, 1.0]
    found = estimate_paired_difference([{str(place): [value] for place, value in enumerate(values)}], resamples=40_000)
    moving = [value for value in values if value]
    sums = [abs(np.dot(signs, moving)) for signs in itertools.product([-1, 1], repeat=len(moving))]
    assert found.p_value == pytest.approx(np.mean([one >= abs(sum(values)) - 1e-9 for one in sums]), abs=0.01)


def test_the_interval_covers_as_often_as_it_says():
    rng, hits = np.random.default_rng(2), 0
    for trial in range(200):
        tasks = [
            {str(place): rng.choice([-1.0, 0.0, 1.0], p=[0.1, 0.6, 0.3], size=2).tolist() for place in range(80)}
            for _ in range(2)
        ]
        found = estimate_paired_difference(tasks, seed=trial, resamples=600)
        hits += found.low <= 0.2 <= found.high
    assert 180 <= hits <= 199


def test_no_difference_is_no_evidence():
    found = estimate_paired_difference([{"a": [0.0], "b": [0.0]}])
    assert (found.mean, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_nothing_to_compare_is_rejected():
    with pytest.raises(SettingsError, match="examples of every task"):
        estimate_paired_difference([{}])


def test_resampling_kinds_of_examples_is_resampling_examples():
    """The slow way, example by example, has the same means and the same spread."""
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 4, 60).astype(float)
    sums = np.array([rng.integers(-count, count + 1) for count in counts], dtype=float)
    chosen = rng.integers(0, 60, (20_000, 60))
    slow = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    fast = bootstrap_means(sums, counts, rng, 20_000)
    error = slow.std() / np.sqrt(20_000)
    assert abs(fast.mean() - slow.mean()) < 6 * error
    assert fast.std() == pytest.approx(slow.std(), rel=0.03)
    assert np.percentile(fast, [2.5, 97.5]) == pytest.approx(np.percentile(slow, [2.5, 97.5]), abs=20 * error)
