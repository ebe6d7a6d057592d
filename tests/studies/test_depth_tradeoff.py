"""Accuracy against depth from one policy, end to end on a tiny model."""

import dataclasses

import pytest

from macro_routing.errors import RunError, SettingsError
from macro_routing.evaluation.statistics import compare_paired
from macro_routing.routes import Route, parse_route
from macro_routing.runs import RunFolder
from macro_routing.search import decode_top_routes
from macro_routing.studies.depth_tradeoff import (
    copy_p_values_by_route,
    load_policy,
    run_depth_tradeoff,
    summarize_most_accurate_depth,
)
from macro_routing.studies.settings import (
    DepthTradeoffSettings,
)
from tests.studies.contexts import BASE, SMALL, check_written_files, small_context


def test_depth_tradeoff(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    context.load_or_search("macro", context.make_run_config(SMALL, 1))
    policy = load_policy(RunFolder.open(context.folder.run_folder("macro")))
    found = run_depth_tradeoff(context, subject, policy, DepthTradeoffSettings((1.5, 0.7, 1.0), 4))
    rows = found.table.rows
    assert [row["limit"] for row in rows] == [int(depth * frozen.layers) for depth in (0.7, 1.0, 1.5)]
    run = context.prepare_task(SMALL, 1)
    plain = dataclasses.replace(run.evaluator, store=None)
    standard = Route.standard(frozen.layers)
    for row in rows:
        decoded = {one.route for other in rows for one in decode_top_routes(policy, 4, other["limit"])} | {standard}
        fitting = [route for route in decoded if route.length <= row["limit"]]
        on_validation = plain.evaluate(fitting, run.splits.validation)
        assert row["length"] <= row["limit"]
        assert row["validation"] == max(on_validation[route].score.accuracy for route in fitting)
        chosen = parse_route(row["route"], frozen.layers)
        scored = plain.evaluate([standard, chosen], run.splits.test)
        expected = compare_paired(scored[standard].correct, scored[chosen].correct)
        assert (row["difference"], row["fixed"]) == pytest.approx((expected.difference, expected.fixed))
    check_written_files(context, found)
    best = [row["validation"] for row in rows]
    assert best == sorted(best)  # more room never makes the best within it worse
    twice = run_depth_tradeoff(
        small_context(tmp_path / "twice", frozen), subject, policy, DepthTradeoffSettings((1.5, 1.51), 4)
    )
    assert [row["route"] for row in twice.table.rows] == [rows[2]["route"]] * 2
    assert twice.table.rows[1]["p"] is None  # the same route is compared once
    assert len({row["p_holm"] for row in copy_p_values_by_route(twice.table.rows)}) == 1  # and drawn alike
    with pytest.raises(SettingsError, match=r"so short: depth 0\.01"):
        run_depth_tradeoff(context, subject, policy, DepthTradeoffSettings((0.01, 1.0), 4))
    plain_base = BASE.with_changes(method="random", search={})
    context.load_or_search("random", plain_base.with_changes(task="small", seed=1))
    with pytest.raises(RunError, match="holds no policy"):
        load_policy(RunFolder.open(context.folder.run_folder("random")))


def test_the_best_depth_is_validations():
    row = {"low": -0.1, "high": 0.1, "n": 20, "p_holm": 0.5, "difference": 0.0}
    rows = [
        {**row, "depth": 0.9, "length": 5, "validation": 0.6, "accuracy": 0.1, "difference": -0.3},
        {**row, "depth": 1.0, "length": 6, "validation": 0.6, "accuracy": 0.9},
        {**row, "depth": 1.1, "length": 6, "validation": 0.5, "accuracy": 0.95},
    ]
    told = summarize_most_accurate_depth(rows, 6)
    assert "0.9 times" in told
    assert "−30.0 points" in told
    assert "p = 0.5, corrected" in told
