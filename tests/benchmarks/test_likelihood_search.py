"""The benchmark of searches by likelihood: its clock counts every second once, and it searches without a GPU."""

import json
import sys
import time

import pytest

from benchmarks import likelihood_search
from benchmarks.likelihood_search import PartClock, estimate_share_outside_kernels
from macro_routing.runs import make_run_config


def test_what_runs_within_a_part_counts_for_itself_alone(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = PartClock()

    def spend(seconds):
        now[0] += seconds

    inner = clock.time_function("inner", spend)
    with clock.run_part("outer"):
        spend(1)
        inner(2)
        spend(4)
        with pytest.raises(TypeError):
            inner("not a number")
    spend(8)
    assert clock.seconds == {"outer": 5, "inner": 2}
    assert clock.calls == {"outer": 1, "inner": 2}


def test_the_share_outside_kernels_is_what_scoring_leaves_idle_and_everything_else():
    rows = [{"part": "layers", "seconds": 6.0}, {"part": "grading", "seconds": 4.0}]
    kernels = {"round_kernel_seconds": 1.0, "round_seconds": 2.0}
    assert estimate_share_outside_kernels(rows, kernels) == pytest.approx(70)


def test_a_search_is_timed_by_part_and_left_as_it_was(tmp_path, monkeypatch):
    before = [vars(owner)[name] for _, owner, names in likelihood_search.PARTS for name in names]
    path = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["", "--shape", "tiny", "--budget", "400", "--write", str(path)])
    likelihood_search.main()
    record = json.loads(path.read_text())
    rows = {row["part"]: row for row in record["results"]}
    assert {part for part, _, _ in likelihood_search.PARTS} <= set(rows)
    assert sum(row["seconds"] for row in rows.values()) == pytest.approx(record["search_seconds"])
    assert rows["layers"]["calls"] > 100
    assert before == [vars(owner)[name] for _, owner, names in likelihood_search.PARTS for name in names]


def test_the_first_round_is_scored_as_its_search_asks_for_it():
    frozen = likelihood_search.make_model(None, "tiny")
    config = make_run_config("category", frozen.name, budget=400, decoding={"mode": "likelihood"})
    with likelihood_search.prepare_first_round(frozen, config) as score:
        scores = score()
    assert len(scores) > 1
    assert len({len(items) for items in scores.values()}) == 1
