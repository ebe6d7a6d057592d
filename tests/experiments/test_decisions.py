"""The figures about the final decision: what they count, on made-up replays and on one real landscape."""

import numpy as np
import pytest

from experiments import decisions
from experiments.decisions import CALIBRATION, NULL, SPEED
from macro_routing.evaluation.gain_posterior import PRIOR_SCALES

SMALL = "qwen2.5-coder-0.5b-gsm8k-reasoning"


def finalist(fresh, judged, *, route="L0-L4 L4 RJ", length=25):
    return {"route": route, "length": length, "p_value": 0.5, "fresh": list(fresh), "judged": list(judged)}


def replay(task, *finalists, returned=None, mode="likelihood"):
    about = {"landscape": task, "task": task, "seed": 1, "mode": mode, "layers": 24}
    return {**about, "returned": returned, "finalists": list(finalists)}


def draw_replays(rng, scales, count, n=400, tasks="abcdefgh"):
    """Finalists whose true gains have known spreads, and what two sets of examples show of them."""

    def measure(gain):
        fixed, broken, _ = rng.multinomial(n, [0.25 + gain / 2, 0.25 - gain / 2, 0.5])
        return int(fixed), int(broken), n

    gains = np.clip(rng.normal(0, rng.choice(scales, count)), -0.49, 0.49)
    return [replay(tasks[i % len(tasks)], finalist(measure(g), measure(g))) for i, g in enumerate(gains)]


def test_a_landscape_without_better_routes_returns_the_standard_pass():
    run = decisions.run_replay((NULL, SMALL, 5))
    assert (run["mode"], run["task"], run["returned"]) == ("reasoning", "gsm8k", None)
    assert run == decisions.run_replay((NULL, SMALL, 5))
    assert all(sum(one["fresh"][:2]) <= one["fresh"][2] for one in run["finalists"])


def test_the_null_replays_every_way_to_answer_as_often():
    jobs = list(decisions.list_jobs(NULL, 7, 100))
    modes = [name.rsplit("-", 1)[1] for _, name, _ in jobs]
    assert {mode: modes.count(mode) for mode in modes} == {"likelihood": 7, "direct": 7, "reasoning": 7}
    assert len(set(jobs)) == len(jobs)
    assert [seed for _, name, seed in jobs if name == SMALL] == list(range(100, 107))  # the only one with reasoning
    landscapes = {name for _, name, _ in decisions.list_jobs(CALIBRATION, 2, 0)}
    assert len(list(decisions.list_jobs(CALIBRATION, 2, 0))) == 2 * len(landscapes)


def test_returned_routes_are_counted_by_way_to_answer():
    runs = [replay("a", returned="L0 RJ"), replay("a"), replay("b", mode="direct")]
    direct, likelihood = decisions.make_null_rows(runs)
    assert (direct["mode"], direct["returned_percent"], direct["n"]) == ("direct", 0, 1)
    assert (likelihood["mode"], likelihood["returned_percent"], likelihood["n"]) == ("likelihood", 50, 2)
    assert likelihood["low"] < 50 < likelihood["high"]


@pytest.mark.parametrize("component", [1, 2])
def test_the_prior_is_learned_from_the_finalists(component):
    runs = draw_replays(np.random.default_rng(0), [PRIOR_SCALES[component]], 2000)
    counts = [tuple(run["finalists"][0]["fresh"]) for run in runs]
    weights = decisions.fit_prior_weights(counts, np.ones(len(counts)))
    spread = np.sqrt(np.dot(weights, np.square(PRIOR_SCALES)))
    assert spread == pytest.approx(PRIOR_SCALES[component], rel=0.25)


def test_predictions_for_a_task_left_out_have_their_coverage():
    finalists = decisions.predict_left_out_tasks(draw_replays(np.random.default_rng(1), PRIOR_SCALES, 800))
    everything = decisions.make_calibration_rows(finalists)[0]
    assert everything["n"] == 800
    for level in (50, 80, 95):
        assert everything[f"coverage_{level}"] == pytest.approx(level, abs=5)
    slope = decisions.compute_calibration_slope(finalists, resamples=200)
    assert slope["slope"] == pytest.approx(1, abs=0.1)
    assert slope["slope_low"] < slope["slope"] < slope["slope_high"]


def test_overconfident_predictions_are_found_out():
    finalists = decisions.predict_left_out_tasks(draw_replays(np.random.default_rng(2), PRIOR_SCALES, 800))
    shifted = [{**one, "quantile": 0.5 + (one["quantile"] - 0.5) * 2} for one in finalists]
    assert decisions.make_calibration_rows(shifted)[0]["coverage_50"] < 35


def test_returned_routes_that_are_worse_or_cost_layers_for_nothing_are_counted():
    worse = finalist((30, 5, 200), (5, 60, 400), route="worse")
    nothing = finalist((30, 5, 200), (20, 20, 400), route="nothing")
    shorter = finalist((30, 5, 200), (20, 20, 400), route="shorter", length=20)
    better = finalist((30, 5, 200), (60, 5, 400), route="better")
    runs = [replay("a", one, returned=one["route"]) for one in (worse, nothing, shorter, better)] + [replay("b", worse)]
    summary = decisions.summarize_returned(runs, decisions.predict_left_out_tasks(runs))
    assert (summary["returned"], summary["replays"]) == (4, 5)
    assert summary["worse_after_holm"] == 1
    assert summary["longer_without_gain_percent"] == pytest.approx(40)
    assert summary["mean_measured_gain"] == pytest.approx(100 * (-55 + 0 + 0 + 55) / 4 / 400)


def test_the_claim_of_a_faster_route_is_held_against_all_examples():
    run = decisions.run_replay((SPEED, SMALL, 5))
    assert run["length"] <= run["layers"] == 24
    assert run["gain_of_all"] == 0 or run["returned"]
    kept = finalist((1, 1, 50), (4, 6, 100), length=22)
    runs = [
        {**replay("a", kept, returned=kept["route"]), "length": 22, "gain_of_all": -0.02},
        {**replay("a", kept, returned=kept["route"]), "length": 20, "gain_of_all": -0.04},
        {**replay("b"), "length": 24, "gain_of_all": 0.0},
    ]
    first, _, everything = decisions.make_speed_rows([*runs[:2], runs[2], runs[2]])
    assert first["saved"] == pytest.approx(100 * 3 / 24)
    assert first["change"] == pytest.approx(-2)
    assert (first["returned_percent"], first["true_percent"]) == (100, 50)
    assert (everything["returned_percent"], everything["true_percent"], everything["n"]) == (50, 75, 4)


def test_replays_that_were_kept_are_not_run_again(tmp_path, monkeypatch):
    jobs = [(NULL, SMALL, 5), (NULL, SMALL, 6)]
    first = decisions.run_missing(jobs, tmp_path / "runs.jsonl", 1)
    monkeypatch.setattr(decisions, "ProcessPoolExecutor", lambda _: NoPool())
    assert decisions.run_missing(jobs, tmp_path / "runs.jsonl", 1) == first


class NoPool:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, _run, jobs):
        assert not jobs
        return []
