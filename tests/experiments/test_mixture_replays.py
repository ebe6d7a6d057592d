"""Mixtures on recorded log-likelihoods."""

import numpy as np

from experiments.mixture_replays import COST, NULL, load_scores, make_cost_rows, make_null_rows, run_replay

LANDSCAPE = "smollm2-135m-sciq-likelihood"


def test_the_scores_give_the_recorded_accuracy_of_the_standard_pass():
    routes, scores, answers = load_scores(LANDSCAPE)
    assert routes[0].is_standard
    assert str(routes[1]) == "1.0 [L0 RJ | no question]"
    assert 0.3 < np.mean(np.nanargmax(scores[0], axis=1) == answers) < 0.7


def test_members_gain_and_cost():
    run = run_replay((COST, LANDSCAPE, 1), max_cost=2.0)
    assert run["gains"][0] == 0
    assert run["gains"][1] > 0.02
    assert run["lengths"] == sorted(run["lengths"])
    rows = make_cost_rows([run, run_replay((COST, LANDSCAPE, 2), max_cost=2.0)])
    assert [row["members"] for row in rows if row["landscape"] == "all"] == [1, 2, 3, 4]


def test_random_answers_return_the_standard_pass():
    runs = [run_replay((NULL, LANDSCAPE, seed), max_cost=2.0) for seed in range(3)]
    assert make_null_rows(runs)[0]["n"] == 3
    assert sum(run["returned"] for run in runs) < 2
