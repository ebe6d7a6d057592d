"""One route against the standard pass, in one call."""

import dataclasses

import pytest

from macro_routing import evaluation
from macro_routing.errors import RouteError
from macro_routing.evaluation import DecodingSettings, Evaluator, ScoreStore, evaluate
from macro_routing.evaluation.evaluator import compare_route_with_standard
from macro_routing.evaluation.statistics import compare_paired, wilson_interval
from macro_routing.routes import Route, parse_route
from tests.runs.small import small_frozen, small_task


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


def test_a_route_is_compared_with_the_standard_pass(frozen, tmp_path):
    task, route = small_task(), parse_route("L0 L2 RJ", 6)
    examples = task.pools["test"][:30]
    store = ScoreStore(tmp_path / "s.sqlite")
    summary = evaluate(frozen, task, "L0 L2 RJ", examples=examples, store=store)
    scores = Evaluator(frozen, task, DecodingSettings("likelihood")).evaluate([Route.standard(6), route], examples)
    expected = compare_paired(scores[Route.standard(6)].correct, scores[route].correct)
    assert summary.route == route
    assert (summary.n, summary.accuracy, summary.baseline_accuracy) == (30, expected.routed, expected.baseline)
    assert summary.accuracy_interval == wilson_interval(expected.routed, 30)
    assert (summary.difference, summary.p_value) == (expected.difference, expected.p_value)
    assert summary.difference_interval == (expected.low, expected.high)
    assert summary.routed.outcomes == scores[route].outcomes
    again = evaluate(frozen, task, route, examples=examples, store=store)
    assert (again.routed.from_store, again.baseline.from_store) == (30, 30)


def test_a_route_that_cannot_be_run_is_an_error(frozen):
    task = small_task()
    (routed,) = (
        Evaluator(frozen, task, DecodingSettings("likelihood"))
        .evaluate([Route.standard(6)], task.pools["test"][:2])
        .values()
    )
    failed = dataclasses.replace(routed, failure="crashed its worker 3 times")
    with pytest.raises(RouteError, match="cannot be run: it crashed its worker 3 times"):
        compare_route_with_standard(failed, routed)


def test_the_public_names_exist():
    assert all(getattr(evaluation, name) for name in evaluation.__all__)
    with pytest.raises(AttributeError):
        _ = evaluation.no_such_name
