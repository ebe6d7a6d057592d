"""Explaining a route by its deviations, end to end on a tiny model."""

import dataclasses

import pytest

from macro_routing.errors import RouteError
from macro_routing.evaluation.statistics import compare_paired
from macro_routing.routes import Route, parse_route
from macro_routing.routes.notation import parse_route_or_mixture
from macro_routing.runs import Listener
from macro_routing.studies.context import RouteWithSearchedTask
from macro_routing.studies.explain import ablate_route_deviations, split_difference_by_truncation
from macro_routing.studies.logit_lens import run_logit_lens
from macro_routing.studies.study_result import write_study_result
from tests.studies.contexts import SMALL, check_written_files, small_context


def test_explain(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    found = ablate_route_deviations(context, subject)
    whole, *parts = found.table.rows
    prepared = context.prepare_task(SMALL, 1)
    plain = dataclasses.replace(prepared.evaluator, store=None)
    standard = Route.standard(frozen.layers)
    scored = plain.evaluate([standard, subject.route], prepared.splits.test)
    expected = compare_paired(scored[standard].correct, scored[subject.route].correct)
    assert (whole["difference"], whole["fixed"], whole["broken"]) == pytest.approx(
        (expected.difference, expected.fixed, expected.broken)
    )
    assert [row["number"] for row in parts] == [1, 2]
    assert found.table.to_formatted_records()[1]["no."] == "1"
    assert found.table.notes[0].startswith(f"Seed 1, n = {expected.n};")
    assert len(found.tables["examples"].rows) == expected.fixed + expected.broken
    check_written_files(context, found)


def test_a_single_deviation_is_compared_once(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = ablate_route_deviations(context, RouteWithSearchedTask(parse_route("L0-L2 L1 RJ", frozen.layers), SMALL, 1))
    assert found.comparison_count == 1
    assert found.table.rows[1]["difference"] == found.table.rows[0]["difference"]


def test_members_of_a_mixture_are_left_out_in_turn(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    text = "2.2 [L0 RJ] - 0.7 [L0 L2 RJ] - 0.5 [L0-L3 L3 RJ]"
    found = ablate_route_deviations(
        context, RouteWithSearchedTask(parse_route_or_mixture(text, frozen.layers), SMALL, 1)
    )
    assert [row["deviation"] for row in found.table.rows[1:]] == ["-0.7 × L0 L2 RJ", "-0.5 × L0-L3 L3 RJ"]
    assert found.table.rows[1]["left"] == "2.2 [L0 RJ] - 0.5 [L0-L3 L3 RJ]"
    check_written_files(context, found)
    single = RouteWithSearchedTask(parse_route_or_mixture(text, frozen.layers), SMALL, 1)
    with pytest.raises(RouteError, match="a mixture of 3 routes, but the logit lens takes a single route"):
        run_logit_lens(context, single)


def test_explaining_the_standard_pass_compares_nothing(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = ablate_route_deviations(context, RouteWithSearchedTask(Route.standard(frozen.layers), SMALL, 1))
    assert found.comparison_count == 0
    assert not found.figures
    assert "nothing to explain" in found.headline
    write_study_result(context.folder, found, {}, "", lambda _: None)


def test_gains_of_answers_that_are_no_longer_truncated():
    before = {"correct": [0, 0, 1, 0, 1], "truncated": [1, 1, 0, 0, 0]}
    after = {"correct": [1, 1, 1, 1, 0], "truncated": [0, 1, 0, 0, 1]}
    found = split_difference_by_truncation(before, after)
    assert (found["difference"], found["fewer_truncated"], found["more_truncated"]) == pytest.approx((0.4, 0.2, -0.2))
    assert found["by_truncation"] + found["rest"] == pytest.approx(found["difference"])
    assert (found["rest"], found["still_truncated"]) == pytest.approx((0.2, 0.2))


def test_what_is_measured_is_told_in_words(tmp_path):
    told = []

    class Told(Listener):
        def on_message(self, text):
            told.append(text)

    route = parse_route("L0-L3 L2 RJ", 6)
    context = small_context(tmp_path, listener=Told())
    context.score_routes("on-small", SMALL, 1, {"route": route})
    assert told == ["scoring 2 routes on 20 test examples of small"]
