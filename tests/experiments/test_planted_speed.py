"""Planted problems with layers that can be left out."""

import numpy as np
import pytest

from experiments import planted_speed
from experiments.planted_family import LAYERS
from macro_routing.routes import Route, parse_route


@pytest.mark.parametrize(
    ("text", "cost"),
    [("L0 RJ", 0), ("L0 L2 RJ", 0), ("L0 L3 RJ", 1), ("L0 L1 L1 RJ", 1), ("L0 L0 L2 RJ", 1), ("L0 L1 L2(+h-1) RJ", 1)],
)
def test_only_unneeded_layers_are_left_out_for_nothing(text, cost):
    """Layer 1 is not needed, but a second visit of it costs what any other insertion does."""
    assert planted_speed.count_costly_edits(parse_route(text, 6), frozenset({1})) == cost


def test_the_target_is_as_good_as_the_standard_pass_and_shorter():
    for seed in range(24):
        problem = planted_speed.make_problem(seed)
        assert problem.true_score(problem.target) == problem.true_score(Route.standard(LAYERS)) == problem.peak
        assert LAYERS - problem.target.length == len(problem.unneeded) == 1 + seed // 3 % 6


def test_routes_agree_on_most_examples():
    problem = planted_speed.make_problem(4)
    routes = [Route.standard(LAYERS), problem.target]
    first, second = (problem.simulate_which_examples_correct(route, "train", range(20_000)) for route in routes)
    assert first.mean() == pytest.approx(problem.peak, abs=0.015)
    assert second.mean() == pytest.approx(problem.peak, abs=0.015)
    assert 0.08 < np.mean(first != second) < 0.15


def test_a_saving_that_costs_more_than_the_margin_does_not_count():
    runs = [
        {"unneeded": 2, "saved": 2, "is_true": True},
        {"unneeded": 2, "saved": 3, "is_true": False},
        {"unneeded": 4, "saved": 1, "is_true": True},
    ]
    two, four, everything = planted_speed.make_rows(runs)
    assert (two["saved_share"], two["true_percent"]) == (50, 50)
    assert four["saved_share"] == 25
    assert everything["saved_share"] == pytest.approx(125 / 3)
