"""The comparison of a dense score with right or wrong: what is measured, and that it can come out either way."""

import math

import numpy as np
import pytest

from benchmarks import dense_score
from benchmarks.dense_score import lines, log_probability
from macro_routing.tasks.task import Example

EXAMPLE = Example("one", "which?", "B", choices=("no", "four"))


def test_probabilities_are_those_of_what_choices_are_judged_by():
    row = [2 * -1.0, 4 * -0.5]  # per byte: -1 and -0.5
    assert log_probability(EXAMPLE, row) == pytest.approx(-0.5 - math.log(math.exp(-1) + math.exp(-0.5)))
    overflown = [math.nan, -1.0]
    assert log_probability(EXAMPLE, overflown) == pytest.approx(-math.log(2))


@pytest.mark.parametrize("is_telling", [True, False])
def test_the_better_score_chooses_the_better_route(is_telling, monkeypatch):
    monkeypatch.setattr(dense_score, "TIMES", 80)
    rng = np.random.default_rng(1)
    rates = [0.5, *np.linspace(0.2, 0.7, 40)]
    rows = []
    for rate in rates:
        right = rng.random(300) < rate
        noise = rng.normal(size=300)
        dense = rate + 0.1 * noise if is_telling else noise
        rows.append({"task": "planted", "right": "".join(str(int(one)) for one in right), "dense": dense.tolist()})
    few, some, many = lines(rows)
    assert [few["seen"], some["seen"], many["seen"]] == [16, 48, 145]
    assert (few["dense_gain"] > few["gain"] + 2) == is_telling
    assert (few["dense_agreement"] > few["agreement"]) == is_telling
    assert few["gain"] < many["gain"] <= many["best"]
    assert few["n"] == "40 × 300"
