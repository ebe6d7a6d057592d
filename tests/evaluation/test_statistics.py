import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.errors import SettingsError
from macro_routing.evaluation.statistics import (
    best_of_many_p_value,
    bootstrap_gain_over_benchmarks,
    compare_paired,
    holm_correction,
    mcnemar_p_value,
    mcnemar_power,
    paired_bootstrap_interval,
    smallest_detectable_gain,
    wilcoxon_p_value,
    wilson_interval,
)

_PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "published_results.json").read_text())
# The paper's significance table: mean, interval, wins/ties/losses, Holm-corrected p-value.
TABLE = {
    "Qwen3-1.7B": (12.68, (6.70, 21.38), (13, 0, 0), 7.3e-4),
    "Qwen/Qwen3-4B": (1.50, (0.62, 2.51), (9, 4, 0), 2.0e-3),
    "Qwen/Qwen3-8B": (0.76, (0.33, 1.25), (11, 2, 0), 2.0e-3),
    "Qwen/Qwen3-14B (4-bit)": (0.78, (0.33, 1.31), (10, 3, 0), 2.0e-3),
    "mistralai/Mixtral-8x7B-Instruct-v0.1 (4-bit)": (1.33, (0.86, 1.91), (13, 0, 0), 7.3e-4),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": (13.04, (5.07, 22.00), (11, 2, 0), 2.0e-3),
}


def _differences(model):
    rows = {row["method"]: row["accuracy"] for row in _PUBLISHED if row["model"] == model}
    baseline, macro = rows["Baseline"], rows["MACRO"]
    return [macro[name][0] - baseline[name][0] for name in baseline if name != "Avg"]


@pytest.fixture(scope="module")
def reproduced():
    return {model: bootstrap_gain_over_benchmarks(_differences(model)) for model in TABLE}


@pytest.mark.parametrize("model", TABLE)
def test_the_papers_table_is_reproduced(reproduced, model):
    mean, (low, high), counts, _ = TABLE[model]
    found = reproduced[model]
    assert round(found.mean, 2) == pytest.approx(mean, abs=0.0051)
    assert (found.wins, found.ties, found.losses) == counts
    assert found.low == pytest.approx(low, abs=0.15)
    assert found.high == pytest.approx(high, abs=0.15)


def test_the_papers_p_values_are_reproduced(reproduced):
    corrected = dict(zip(TABLE, holm_correction([reproduced[model].p_value for model in TABLE]), strict=True))
    for model, (_, _, _, expected) in TABLE.items():
        assert float(f"{corrected[model]:.1e}") == expected, model


@settings(max_examples=60)
@given(st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=9))
def test_wilcoxon_equals_all_sign_patterns(values):
    values = np.array([value for value in values if value != 0])
    if len(values) == 0:
        return
    sizes = np.abs(values)
    ranks = np.array([(sizes < size).sum() + ((sizes == size).sum() + 1) / 2 for size in sizes])
    observed = ranks[values > 0].sum()
    sums = [
        ranks[list(signs)].sum() for signs in (np.array(s, bool) for s in itertools.product([0, 1], repeat=len(values)))
    ]
    assert wilcoxon_p_value(values) == pytest.approx(np.mean([total >= observed - 1e-9 for total in sums]))


def test_wilcoxon_equals_scipys_without_ties():
    from scipy.stats import wilcoxon

    values = np.random.default_rng(0).normal(0.4, 1, size=13)
    assert wilcoxon_p_value(values) == pytest.approx(wilcoxon(values, alternative="greater", method="exact").pvalue)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_equals_scipys_binomial_test(fixed, broken):
    from scipy.stats import binomtest

    expected = binomtest(fixed, fixed + broken).pvalue if fixed + broken else 1.0
    assert mcnemar_p_value(fixed, broken) == pytest.approx(min(1.0, expected), abs=1e-9)


def test_mcnemar_survives_large_counts():
    assert mcnemar_p_value(5000, 3000) < 1e-100
    assert 0.9 < mcnemar_p_value(4000, 4000) <= 1


def test_holm():
    assert holm_correction([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm_correction([0.9, 0.8]) == [1.0, 1.0]


def test_compare_counts_and_covers():
    baseline = np.array([1, 1, 0, 0, 1, 0] * 50)
    routed = np.array([1, 0, 1, 1, 1, 0] * 50)
    found = compare_paired(baseline, routed)
    assert (found.n, found.fixed, found.broken) == (300, 100, 50)
    assert found.difference == pytest.approx(1 / 6)
    assert found.low < found.difference < found.high
    assert found.p_value == mcnemar_p_value(100, 50)
    assert compare_paired(baseline, routed) == found


def test_no_difference_among_a_few_examples_is_no_certainty():
    same = compare_paired([1] * 12, [1] * 12)
    assert same.high == -same.low == pytest.approx(1 - 0.025 ** (1 / 12))
    assert compare_paired([1] * 12, [1] * 12, is_same_route=True).high == 0.0
    assert compare_paired([1, 0] * 1000, [1, 0] * 1000).high < 0.002


def test_bootstrap_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(300):
        baseline, routed = rng.random(200) < 0.5, rng.random(200) < 0.6
        low, high = paired_bootstrap_interval(baseline, routed, seed=trial, resamples=1000)
        hits += low <= 0.1 <= high
    assert hits / 300 == pytest.approx(0.95, abs=0.04)


def test_bootstrap_equals_plain_resampling():
    rng = np.random.default_rng(1)
    baseline, routed = rng.random(80) < 0.4, rng.random(80) < 0.6
    differences = routed.astype(float) - baseline
    plain = differences[rng.integers(80, size=(40_000, 80))].mean(axis=1)
    found = paired_bootstrap_interval(baseline, routed, resamples=40_000)
    assert found == pytest.approx(np.percentile(plain, [2.5, 97.5]), abs=0.013)


def test_the_best_of_many_lucky_ones_is_not_significant():
    rng = np.random.default_rng(2)
    lucky = 0
    for trial in range(60):
        baseline = rng.random(150) < 0.5
        candidates = rng.random((20, 150)) < 0.5
        best = candidates[candidates.mean(axis=1).argmax()]
        uncorrected = compare_paired(baseline, best).p_value
        corrected = best_of_many_p_value(baseline, candidates, seed=trial, resamples=500)
        assert corrected >= uncorrected / 2 - 0.02
        lucky += corrected < 0.05
    assert lucky <= 9  # 5 % of 60, with room for noise; uncorrected it would be half of them


def test_a_real_gain_survives_the_correction():
    rng = np.random.default_rng(3)
    baseline = rng.random(400) < 0.3
    candidates = np.stack([rng.random(400) < 0.3 for _ in range(10)] + [rng.random(400) < 0.5])
    assert best_of_many_p_value(baseline, candidates) < 0.01


def test_harmful_candidates_do_not_hide_a_real_gain():
    rng = np.random.default_rng(6)
    found = 0
    for trial in range(40):
        baseline = rng.random(200) < 0.5
        better = baseline | (rng.random(200) < 0.14)
        harmful = [baseline & (rng.random(200) < 0.2) for _ in range(15)]
        found += best_of_many_p_value(baseline, [better, *harmful], seed=trial, resamples=1000) < 0.05
    assert found >= 32


def test_wilcoxon_survives_many_benchmarks():
    values = np.random.default_rng(0).normal(0.1, 1, size=1200)
    assert 0 < wilcoxon_p_value(values) < 0.1


def test_power_equals_simulation():
    rng = np.random.default_rng(4)
    n, discordance, gain = 120, 0.3, 0.12
    p_fixed, p_broken = (discordance + gain) / 2, (discordance - gain) / 2
    found = 0
    for _ in range(3000):
        fixed, broken, _rest = rng.multinomial(n, [p_fixed, p_broken, 1 - discordance])
        found += mcnemar_p_value(int(fixed), int(broken)) <= 0.05
    assert mcnemar_power(n, discordance, gain) == pytest.approx(found / 3000, abs=0.03)


def test_more_data_shows_smaller_gains():
    gains = [smallest_detectable_gain(n) for n in (100, 300, 1000)]
    assert gains[0] > gains[1] > gains[2] > 0
    assert mcnemar_power(300, 0.2, gains[1]) == pytest.approx(0.8, abs=0.02)
    assert smallest_detectable_gain(5) == math.inf


@pytest.mark.parametrize(
    "call",
    [
        lambda: compare_paired([1, 0], [1]),
        lambda: compare_paired([], []),
        lambda: best_of_many_p_value([1], [[1, 0]]),
        lambda: smallest_detectable_gain(0),
        lambda: best_of_many_p_value([], [[]]),
        lambda: bootstrap_gain_over_benchmarks([]),
        lambda: bootstrap_gain_over_benchmarks([float("nan")]),
    ],
)
def test_nonsense_is_rejected(call):
    with pytest.raises(SettingsError):
        call()


@pytest.mark.parametrize(("accuracy", "n"), [(0.0, 10), (0.3, 10), (1.0, 40), (0.5, 1000)])
def test_the_interval_of_an_accuracy_is_wilsons(accuracy, n):
    low, high = wilson_interval(accuracy, n)
    for bound in (low, high):
        if 0 < bound < 1:  # the bounds are where a score test is just not significant
            assert abs(accuracy - bound) / math.sqrt(bound * (1 - bound) / n) == pytest.approx(1.959964, abs=1e-5)
    assert 0 <= low <= accuracy <= high <= 1
