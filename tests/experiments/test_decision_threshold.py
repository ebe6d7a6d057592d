"""The table of thresholds: one search, and every threshold chooses as the search with that threshold would."""

import json

import pytest

from benchmarks.record import ROOT
from experiments import decision_threshold
from experiments.planted_family import TRAINING, VALIDATION, make_problem
from experiments.planted_searches import ALIKE, NOTHING, PLANTED, make_guided
from macro_routing.evaluation.planted_problem import solve_planted

SEED = 2
"""A hard problem of one move: with a small error probability the standard pass is returned."""


@pytest.mark.engines  # three whole searches
def test_a_threshold_chooses_as_the_search_with_it_does():
    known = decision_threshold.find_finalists((PLANTED, SEED))
    planted = make_problem(SEED)
    for most in (0.03, 1.0):
        result = solve_planted(
            make_guided(max_error_probability=most)(SEED), planted.problem, training=TRAINING, validation=VALIDATION
        )
        brought = decision_threshold.gain_at_threshold(known, most)
        assert result.selected.route.is_standard is (brought is None)
        assert planted.share(result.selected.route) == pytest.approx(brought or 0.0)


def test_the_first_that_is_sure_enough_is_chosen():
    known = [(0.9, 0.3), (0.99, 0.1), (0.5, 1.0)]
    assert [decision_threshold.gain_at_threshold(known, most) for most in (0.001, 0.05, 0.2)] == [None, 0.1, 0.3]


def test_a_line_counts_every_sort_by_itself():
    few, other = 0, 12
    assert decision_threshold._has_few_moves(few)
    assert not decision_threshold._has_few_moves(other)
    runs = {(PLANTED, few): [(0.99, 1.0)], (PLANTED, few + 3): [(0.8, 1.0)], (PLANTED, other): [(0.96, 0.5)]}
    runs |= {(PLANTED, other + 1): [(0.96, 0.7)], (NOTHING, 0): [(0.4, 0.0)], (ALIKE, 0): [(0.96, 0.0)]}
    runs |= {("some-landscape", 0): [(0.92, -2.0)], ("some-landscape", 1): [(0.5, 9.0)]}
    make_row = decision_threshold.make_row(0.05, runs)
    assert make_row["few"].startswith("0.500 ")
    assert make_row["few"].endswith("(2)")
    assert make_row["others"].startswith("0.600 ")
    assert (make_row[NOTHING], make_row[ALIKE], make_row["some-landscape"]) == ("100 (1)", "0 (1)", "+0.00 (0 %)")
    assert decision_threshold.make_row(0.1, runs)["some-landscape"] == "-1.00 (50 %)"


def test_what_was_kept_is_read_back(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"where": "planted", "seed": 3, "finalists": [[0.5, 1.0]]}\n')
    assert decision_threshold.read_runs(path) == {("planted", 3): [(0.5, 1.0)]}
    assert decision_threshold.read_runs(tmp_path / "none.jsonl") == {}
    assert decision_threshold.read_runs(None) == {}


def test_judging_seeds_are_no_tuning_seeds():
    seeds = [
        seed for where, seed in decision_threshold.list_searches(100, 400, 1) if where in (PLANTED, NOTHING, ALIKE)
    ]
    assert max(seeds) < 1000
    assert len({where for where, _ in decision_threshold.list_searches(100, 400, 1)}) == 3 + 4


def test_the_record_is_made_of_the_searches_that_are_kept():
    kept = ROOT / "experiments" / "raw" / "decision_threshold.jsonl"
    record = ROOT / "docs" / "data" / "decision_threshold.json"
    recorded = json.loads(record.read_text(encoding="utf-8"))["results"]
    assert recorded == [
        decision_threshold.make_row(most, decision_threshold.read_runs(kept)) for most in decision_threshold.THRESHOLDS
    ]
    assert set(decision_threshold.read_runs(kept)) == set(decision_threshold.list_searches(100, 400, 60))
