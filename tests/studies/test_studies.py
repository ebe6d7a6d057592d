"""Every study end to end on a tiny model: what it writes, that it agrees with plain measurements, that it goes on."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from macro_routing.errors import RunError, SettingsError, TaskError
from macro_routing.evaluation.statistics import compare_paired
from macro_routing.models.routing import apply_route
from macro_routing.report.formatting import format_points
from macro_routing.routes import Route, parse_route
from macro_routing.runs import RunFolder
from macro_routing.runs.comparison_results import read_method_runs, write_curve
from macro_routing.runs.options import parse_value
from macro_routing.runs.result import SELECTED, STANDARD, TOP_1
from macro_routing.search import decode_top_routes
from macro_routing.studies.ablation import run_ablation
from macro_routing.studies.composition import Found, find_runs, run_composition, times_applied
from macro_routing.studies.context import PausedError, Subject
from macro_routing.studies.cost import run_cost
from macro_routing.studies.depth_tradeoff import headline_of, judged, policy_of, run_depth_tradeoff
from macro_routing.studies.explain import cut_off_share, run_explain
from macro_routing.studies.logit_lens import lens_items, readings, run_logit_lens
from macro_routing.studies.main_table import _ranked, check_models, gather, leading_method, run_main_table, table_rows
from macro_routing.studies.one_route import run_one_route
from macro_routing.studies.perplexity import perplexities, surprise, windows
from macro_routing.studies.search_time import selection_seconds
from macro_routing.studies.settings import (
    AblationSettings,
    BlockSweepSettings,
    CostSettings,
    DepthTradeoffSettings,
    MainTableSettings,
    OneRouteSettings,
    SideEffectsSettings,
    TransferSettings,
)
from macro_routing.studies.side_effects import questions_in_turn, run_side_effects
from macro_routing.studies.significance import read_results
from macro_routing.studies.study_result import write_study_result
from macro_routing.studies.sweep import default_of, place_of, run_sweep
from macro_routing.studies.task_names import TaskName, parse_task_names
from macro_routing.studies.transfer import run_transfer
from tests.runs.small import small_frozen, small_task
from tests.studies.contexts import BASE, OTHER, SMALL, WRITTEN, small_context

ROUTE = "L0-L2 L1-L3 L4(+h-2) RJ"


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


@pytest.fixture
def subject(frozen):
    return Subject(parse_route(ROUTE, frozen.layers), SMALL, 1)


def written(context, findings):
    """The study's files, read back."""
    data = write_study_result(context.folder, findings, {}, "macro study …", lambda _: None)
    names = {path.name for path in context.folder.path.iterdir()}
    assert {"data.json", "table.csv", "table.md", "table.tex", "figure.svg", "figure.png"} <= names
    assert json.loads((context.folder.path / "data.json").read_text()) == data
    assert len((context.folder.path / "table.csv").read_text().splitlines()) == len(findings.table.rows) + 1
    return data


def test_ablation(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_ablation(context, AblationSettings(("small",), (1,)))
    rows = {row["variant"]: row for row in found.table.rows}
    assert [row["phase"] for row in found.table.rows] == [True, False, True, True, True, True, None]
    assert found.comparisons == 5
    assert found.headline.startswith("In these searches (1 seed(s)) the routes of")
    assert "small n = 20" in found.table.notes[0]
    # The numbers are those of the runs.
    run = RunFolder.open(context.folder.path / "runs" / "no_phase-small-1")
    assert run.read_json("run.json")["config"]["resolved"]["searcher"]["space"]["phase"] is False
    results = [
        json.loads((context.folder.path / "runs" / f"no_phase-{task}-{seed}" / "result.json").read_text())
        for task, seed in [("small", 1)]
    ]
    mean = np.mean([one["variants"][0]["correct"] / one["variants"][0]["n"] for one in results])
    assert rows["no phase"]["accuracy"] == pytest.approx(mean)
    assert rows["no phase"]["difference"] == pytest.approx(mean - rows["full state"]["accuracy"])
    assert any(TOP_1.removeprefix("MACRO ").strip("()") in name for name in rows)
    written(context, found)
    again = run_ablation(small_context(tmp_path, frozen, minutes=0), AblationSettings(("small",), (1,)))
    assert again.table.rows == found.table.rows


def test_sweep(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_sweep(context, BlockSweepSettings(tasks=("small",), seeds=(1,), setting="elite", values=(1, 4)))
    assert [row["value"] for row in found.table.rows[:-1]] == [1, 2, 4]  # the default is among them
    assert [row["is_default"] for row in found.table.rows[:-1]] == [False, True, False]
    assert found.table.rows[1].get("p") is None
    written(context, found)
    assert "the routes of" in found.headline
    assert "small n = 20" in found.table.notes[0]
    assert "1 seed(s) (1)" in found.table.notes[0]
    assert "how much searches vary is no part" in found.table.notes[0]


def test_a_sweep_of_another_method_is_called_by_its_name(tmp_path, frozen):
    base = BASE.with_changes(method="random", search={"iterations": 2, "draws": 6})
    context = dataclasses.replace(small_context(tmp_path, frozen), base=base)
    found = run_sweep(context, BlockSweepSettings(tasks=("small",), seeds=(1,), setting="k", values=(2,)))
    assert "random search; bars" in found.figures[0].to_svg()
    run = RunFolder.open(context.folder.path / "runs" / "k_4-small-1").read_json("run.json")
    assert run["config"]["given"]["search"] == base.search  # the preset's k is no change at all


def test_settings_that_can_be_swept():
    assert place_of("beta", BASE) == "search"
    assert place_of("radius", BASE) == "space"
    assert place_of("training", BASE) == "data"
    assert (default_of("elite", BASE), default_of("radius", BASE), default_of("training", BASE)) == (2, 5, 16)
    assert default_of("max_length", BASE.with_changes(space={})) == 0  # the model settles it
    assert default_of("anchored", BASE.with_changes(method="random", search={})) is True
    with pytest.raises(SettingsError, match="did you mean 'beta'"):
        place_of("bete", BASE)
    for setting in ("test", "data_dir", "question", "answer", "choices", "kind", "layers"):
        with pytest.raises(SettingsError, match=f"{setting} is no setting to sweep"):
            place_of(setting, BASE)
    assert [parse_value(text) for text in ("1", "1.5", "true", "raw")] == [1, 1.5, True, "raw"]


def test_an_impossible_value_is_refused_before_anything_runs(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    with pytest.raises(SettingsError, match="elite"):
        run_sweep(context, BlockSweepSettings(tasks=("small",), seeds=(1,), setting="elite", values=(1, 400)))
    assert not (context.folder.path / "runs").exists()


def test_transfer(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_transfer(context, TransferSettings(("small", "written")))
    assert len(found.table.rows) == 4
    for row in found.table.rows:
        if row["source"] == row["target"]:  # what its own run has tested
            run = RunFolder.open(context.folder.path / "runs" / f"{row['source']}-1")
            assert row["accuracy"] == pytest.approx(run.read_json("result.json")["comparison"]["routed"])
            assert row["difference"] == pytest.approx(run.read_json("result.json")["difference"])
        else:
            task = TaskName(row["target"])
            prepared = context.prepared(task, 1)
            route = parse_route(row["route"], frozen.layers)
            plain = dataclasses.replace(prepared.evaluator, store=None).evaluate([route], prepared.splits.test)
            assert row["accuracy"] == pytest.approx(plain[route].score.accuracy)
    written(context, found)
    with pytest.raises(SettingsError, match="two tasks"):
        run_transfer(context, TransferSettings(("small",)))


@pytest.mark.parametrize("method", ["drllm", "cola"])
def test_what_finds_no_route_is_refused_before_it_searches(tmp_path, frozen, method):
    context = small_context(tmp_path, frozen)
    context = dataclasses.replace(context, base=BASE.with_changes(method=method, search={}))
    with pytest.raises(SettingsError, match=f"--method {method} finds no route"):
        run_transfer(context, TransferSettings(("small", "other")))
    with pytest.raises(SettingsError, match=f"--method {method} finds no route"):
        run_one_route(context, OneRouteSettings(("small",), 1, ("other",)))
    assert not (context.folder.path / "runs").exists()


def test_one_route(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_one_route(context, OneRouteSettings(("small", "written"), 1, ("other",)))
    assert [(row["domain"], row["task"]) for row in found.table.rows] == [
        ("in domain", "small"),
        ("in domain", "written"),
        ("out of domain", "other"),
        ("in domain", "mean"),
        ("out of domain", "mean"),
    ]
    assert found.table.rows[4]["p"] is None  # one task's mean is that task
    inside = [row for row in found.table.rows if row["domain"] == "in domain"]
    assert inside[2]["accuracy"] == pytest.approx((inside[0]["accuracy"] + inside[1]["accuracy"]) / 2)
    written(context, found)
    again = run_one_route(
        small_context(tmp_path, frozen, minutes=0), OneRouteSettings(("small", "written"), 1, ("other",))
    )
    assert again.table.rows == found.table.rows
    with pytest.raises(SettingsError, match="at once"):
        run_one_route(context, OneRouteSettings(("small",), 1, ("small",)))


def test_a_pooled_search_goes_on_where_it_was(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_one_route(context, OneRouteSettings(("small", "written"), 1, ()))
    place = context.folder.path / "runs" / "pool-1"
    for name in ("manifest.json", "result.json", "candidates.json", "states/002.npz", "rounds/002.json"):
        (place / name).unlink()
    again = run_one_route(small_context(tmp_path, frozen), OneRouteSettings(("small", "written"), 1, ()))
    assert again.details["route"] == found.details["route"]
    assert RunFolder.open(place).is_finished


def test_composition(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    for seed in (1, 2, 3):
        context.search(f"small-{seed}", context.config(SMALL, seed))
    found = find_runs([context.folder.path], "macro")
    assert len(found) == 3
    study = run_composition(found)
    (row,) = study.table.rows
    routes = [one.route for one in found]
    assert row["adds"] == pytest.approx(np.mean([route.has_adds for route in routes]))
    assert row["length_change"] == pytest.approx(np.mean([route.length for route in routes]) / frozen.layers - 1)
    shares = np.array(times_applied(routes))
    assert shares.sum(axis=0) == pytest.approx(np.ones(frozen.layers))  # every layer is applied some number of times
    written(context, study)
    with pytest.raises(RunError, match="holds no finished run"):
        find_runs([tmp_path / "nowhere"], None)
    with pytest.raises(RunError, match="none of the 3 runs"):
        find_runs([context.folder.path], "rys")


def test_composition_counts_a_search_once_and_settings_apart(tmp_path, frozen):
    first, second = small_context(tmp_path / "a", frozen), small_context(tmp_path / "b", frozen)
    for context in (first, second):
        context.search("small", context.config(SMALL, 1))
    second.search("other", second.config(SMALL, 1, space={"phase": False}))
    found = find_runs([first.folder.path, second.folder.path], "macro")
    assert len(found) == 2
    study = run_composition(found)
    assert [(row["settings"], row["runs"]) for row in study.table.rows] == [("", 1), ("phase = False", 1)]
    assert "phase = True" in study.table.notes[0]  # what stands behind the line that names nothing
    assert len({figure.name for figure in study.figures}) == 2
    # What a search was tested on, and how long answers may be that nobody writes, make no other search of it.
    third = small_context(tmp_path / "c", frozen)
    changes = {"data": {"test": 10}, "decoding": {"mode": "likelihood", "answer_budget": 9}}
    third.search("small", third.config(SMALL, 1, **changes))
    assert len(find_runs([first.folder.path, third.folder.path], "macro")) == 1
    # Pictures of kinds of searches that are no longer there go with them.
    written(second, study)
    assert len(list(second.folder.path.glob("layers_*.svg"))) == 1
    written(second, run_composition(found[:1]))
    assert not list(second.folder.path.glob("layers_*.svg"))


def test_composition_keeps_depths_apart():
    routes = [Found("m", "MACRO", "r", parse_route("L0 RJ", layers), 1) for layers in (6, 8, 8)]
    study = run_composition(routes)
    assert [(row["layers"], row["runs"]) for row in study.table.rows] == [(8, 2), (6, 1)]
    assert len({figure.name for figure in study.figures}) == 2


def test_composition_counts_what_the_paper_counts():
    texts = ["L0 RJ", "L0-L2 L1-L3 RJ", "L0-L3 L4(+h-2) RJ", "L0-L3 L2(+h-1) RJ"]
    routes = [Found("m", "MACRO", str(place), parse_route(text, 6), place + 1) for place, text in enumerate(texts)]
    (row,) = run_composition(routes).table.rows
    assert (row["adds"], row["moves"], row["both"], row["rank"]) == (0.5, 0.5, 0.25, 2.5)
    assert row["length_change"] == pytest.approx((6 + 8 + 6 + 8) / 4 / 6 - 1)


def test_main_table(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_main_table(context, MainTableSettings(("other",), (1, 2), ("small",), ("macro", "random")))
    assert set(found.tables) == {"table", "significance", "search_time", "best_routes"}
    rows = {row["method"]: row for row in found.table.rows}
    assert {"standard pass", "MACRO", "random search"} <= set(rows)
    arms = read_method_runs(context.folder.path / "runs" / "small--other")
    mine = [arm for arm in arms if arm.method == "random"]
    values = [arm.result.variants[0].accuracy for arm in mine]
    assert rows["random search"]["accuracy"]["other"] == pytest.approx(np.mean(values))
    assert rows["random search"]["deviation"]["other"] == pytest.approx(np.std(values, ddof=1))
    best = max(found.table.rows, key=lambda row: row["accuracy"]["other"])
    assert best["ranks"] == {"other": 1, "average": 1}
    assert len(found.tables["best_routes"].rows) == 1
    for name in ("table", "search_time"):
        assert found.tables[name].notes[0] == "Seeds 1, 2; test examples: other n = 20."
    data = written(context, found)
    assert (context.folder.path / "significance.tex").is_file()
    assert read_results(context.folder.path) == data["details"]["results"]
    # Finished cells are read without the model.
    idle = dataclasses.replace(context, given_model=None, minutes=0)
    assert (
        run_main_table(idle, MainTableSettings(("other",), (1, 2), ("small",), ("macro", "random"))).table.rows
        == found.table.rows
    )


def test_a_variant_that_a_task_has_not_is_an_empty_cell(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_main_table(context, MainTableSettings(("other",), (1,), ("small",), ("macro", "random")))
    assert found.headline.startswith("The highest of 4 averages, picked on these results")
    arms = {
        ("small", task): read_method_runs(context.folder.path / "runs" / "small--other") for task in (OTHER, WRITTEN)
    }
    for arm in arms["small", WRITTEN]:
        arm.right.pop(TOP_1, None)
    row = next(row for row in table_rows(arms) if row["method"] == TOP_1)
    assert row["accuracy"]["other"] is not None
    assert (row["accuracy"]["written"], row["average"], row["p_holm"]) == (None, None, None)
    gathered = gather(arms, SELECTED["macro"])
    assert "3 averages" in gathered.headline
    written(context, gathered)
    assert next(one for one in read_results(context.folder.path) if one["method"] == TOP_1)["accuracy"].keys() == {
        "other"
    }


def test_models_of_one_name_and_methods_that_compare_nothing_are_refused():
    with pytest.raises(SettingsError, match="a/tiny and b/tiny/ are both called tiny"):
        check_models(["a/tiny", "other", "b/tiny/"])
    assert leading_method(["standard", "cola", "random", "macro"]) == "random"
    for methods in (["standard"], ["cola"], ["cola", "standard"]):
        with pytest.raises(SettingsError, match="nothing to compare"):
            leading_method(methods)


def test_ties_share_a_place_and_oracles_have_none():
    values = {"a": 0.5, "b": 0.5004, "c": 0.4, "d": 0.3, "e": 0.2, "oracle": 0.9}
    rows = [
        {"kind": "oracle" if name == "oracle" else "route", "accuracy": {"t": value}, "average": value, "name": name}
        for name, value in values.items()
    ]
    found = {row["name"]: row["ranks"]["t"] for row in _ranked(rows)}
    assert found == {"a": 1, "b": 1, "c": 2, "d": 3, "e": 0, "oracle": 0}


def test_selection_is_timed_from_the_last_round(tmp_path):
    lines = [
        "2026-01-01 10:00:00  begins or goes on: a task",
        "2026-01-01 10:00:30  round 1/1: best 50.0",
        "2026-01-01 10:00:31  validation: at most 5 outcomes",
        "2026-01-01 12:00:00  begins or goes on: a task",
        "2026-01-01 12:00:07  test: at most 5 outcomes",
    ]
    (tmp_path / "log.txt").write_text("\n".join(lines))
    assert selection_seconds(tmp_path) == 8  # the pause does not count, what was done before it does
    (tmp_path / "log.txt").write_text("\n".join([*lines, "2026-01-01 13:00:00  begins or goes on: a task", *lines[4:]]))
    assert selection_seconds(tmp_path) == 8  # stopped in its test, when all was selected
    (tmp_path / "log.txt").write_text("\n".join([*lines[:3], lines[4].replace("12:00:07", "10:00:50")]))
    assert selection_seconds(tmp_path) == 20


# --- studies of one route -----------------------------------------------------------------------------------------


def test_the_lens_ends_with_what_the_model_says(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    for task in (SMALL, WRITTEN, TaskName("written", "reasoning")):
        prepared = context.prepared(task, 1)
        items = lens_items(prepared.evaluator, prepared.splits.test[:5])
        for route in (Route.standard(frozen.layers), subject.route):
            read = readings(frozen, route, items)
            assert {len(one) for one in read} == {route.length}
            for item, values in zip(items, read, strict=True):
                logits = apply_route(frozen, route)(torch.tensor([item.context])).logits[0, -1]
                assert values[-1] == pytest.approx(torch.log_softmax(logits, -1)[item.gold].item(), abs=1e-4)


def test_the_lens_reads_the_right_token(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    prepared = context.prepared(SMALL, 1)
    examples = prepared.splits.test[:5]
    for item, example in zip(lens_items(prepared.evaluator, examples), examples, strict=True):
        assert frozen.tokenizer.decode([item.gold]).strip() == example.choices[example.correct_choice]
        assert frozen.tokenizer.decode(item.context).endswith("Answer:")
    reasoned = context.prepared(TaskName("written", "reasoning"), 1)
    item = lens_items(reasoned.evaluator, reasoned.splits.test[:1])[0]
    standard = Route.standard(frozen.layers)
    outcome = reasoned.evaluator.evaluate([standard], reasoned.splits.test[:1])[standard].outcomes[0]
    assert outcome.reasoning.strip()
    assert outcome.reasoning.strip() in frozen.tokenizer.decode(item.context)  # the standard pass's, held fixed


def test_logit_lens(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    found = run_logit_lens(context, subject)
    assert [row["steps"] for row in found.table.rows] == [frozen.layers, subject.route.length]
    assert found.table.rows[1]["low"] <= found.table.rows[1]["difference"] <= found.table.rows[1]["high"]
    assert len(found.details["steps"]["route"]) == subject.route.length
    written(context, found)
    again = run_logit_lens(small_context(tmp_path, frozen, minutes=0), subject)
    assert again.table.rows == found.table.rows
    with pytest.raises(RunError, match="another model, other data"):
        run_logit_lens(small_context(tmp_path, frozen), dataclasses.replace(subject, seed=1, route=Route.standard(6)))


def test_readings_that_are_no_numbers_are_left_out(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    run_logit_lens(context, subject)
    (first, *_) = sorted((context.folder.path / "cells").iterdir())
    kept = json.loads(first.read_text())
    kept["found"]["route"][0][2], kept["found"]["route"][1][-1] = math.nan, -math.inf
    first.write_text(json.dumps(kept))  # as a route is kept whose numbers run over
    found = run_logit_lens(context, subject)
    assert "Of 20 examples 2 are left out" in found.table.notes[1]
    assert found.table.rows[0]["n"] == 18
    written(context, found)
    for path in (context.folder.path / "cells").iterdir():
        kept = json.loads(path.read_text())
        kept["found"]["route"] = [[math.nan] * len(row) for row in kept["found"]["route"]]
        path.write_text(json.dumps(kept))
    none = run_logit_lens(context, subject)
    assert none.headline.startswith("None of 20 examples can be read")
    write_study_result(context.folder, none, {}, "", lambda _: None)


def test_cost(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    found = run_cost(context, subject, CostSettings(("small", "written"), items=6, repeats=2))
    assert [row["arm"] for row in found.table.rows] == ["standard", "route"] * 2
    assert all(row["item_seconds"] > 0 for row in found.table.rows)
    routed = found.table.rows[3]
    assert routed["lowest"] <= routed["overhead"] <= routed["highest"]
    assert routed["equal_seconds"] > 0
    by_task = [f"{row['task']} {format_points(row['overhead'])} %" for row in found.table.rows if row["arm"] == "route"]
    assert ", ".join(by_task) in found.headline  # no average over tasks in which a route writes more or less
    step = np.mean([found.table.rows[1]["equal_overhead"], routed["equal_overhead"]])
    assert f"{format_points(step)} % time per step" in found.headline
    written(context, found)


def test_explain(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    found = run_explain(context, subject)
    whole, *parts = found.table.rows
    prepared = context.prepared(SMALL, 1)
    plain = dataclasses.replace(prepared.evaluator, store=None)
    standard = Route.standard(frozen.layers)
    scored = plain.evaluate([standard, subject.route], prepared.splits.test)
    expected = compare_paired(scored[standard].correct, scored[subject.route].correct)
    assert (whole["difference"], whole["fixed"], whole["broken"]) == pytest.approx(
        (expected.difference, expected.fixed, expected.broken)
    )
    assert [row["number"] for row in parts] == [1, 2]
    assert found.table.shown()[1]["no."] == "1"
    assert found.table.notes[0].startswith(f"Seed 1, n = {expected.n};")
    assert len(found.tables["examples"].rows) == expected.fixed + expected.broken
    written(context, found)


def test_front(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    context.search("macro", context.config(SMALL, 1))
    policy = policy_of(RunFolder.open(context.folder.run_place("macro")))
    found = run_depth_tradeoff(context, subject, policy, DepthTradeoffSettings((1.5, 0.7, 1.0), 4))
    rows = found.table.rows
    assert [row["limit"] for row in rows] == [int(depth * frozen.layers) for depth in (0.7, 1.0, 1.5)]
    run = context.prepared(SMALL, 1)
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
    written(context, found)
    best = [row["validation"] for row in rows]
    assert best == sorted(best)  # more room never makes the best within it worse
    twice = run_depth_tradeoff(
        small_context(tmp_path / "twice", frozen), subject, policy, DepthTradeoffSettings((1.5, 1.51), 4)
    )
    assert [row["route"] for row in twice.table.rows] == [rows[2]["route"]] * 2
    assert twice.table.rows[1]["p"] is None  # the same route is compared once
    assert len({row["p_holm"] for row in judged(twice.table.rows)}) == 1  # and drawn alike
    with pytest.raises(SettingsError, match=r"so short: depth 0\.01"):
        run_depth_tradeoff(context, subject, policy, DepthTradeoffSettings((0.01, 1.0), 4))
    plain_base = BASE.with_changes(method="random", search={})
    context.search("random", plain_base.with_changes(task="small", seed=1))
    with pytest.raises(RunError, match="holds no policy"):
        policy_of(RunFolder.open(context.folder.run_place("random")))


def test_the_best_depth_is_validations():
    row = {"low": -0.1, "high": 0.1, "n": 20, "p_holm": 0.5, "difference": 0.0}
    rows = [
        {**row, "depth": 0.9, "length": 5, "validation": 0.6, "accuracy": 0.1, "difference": -0.3},
        {**row, "depth": 1.0, "length": 6, "validation": 0.6, "accuracy": 0.9},
        {**row, "depth": 1.1, "length": 6, "validation": 0.5, "accuracy": 0.95},
    ]
    told = headline_of(rows, 6)
    assert "0.9 times" in told
    assert "−30.0 points" in told
    assert "p = 0.5, corrected" in told


def test_a_single_deviation_is_compared_once(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_explain(context, Subject(parse_route("L0-L2 L1 RJ", frozen.layers), SMALL, 1))
    assert found.comparisons == 1
    assert found.table.rows[1]["difference"] == found.table.rows[0]["difference"]


def test_explaining_the_standard_pass_compares_nothing(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_explain(context, Subject(Route.standard(frozen.layers), SMALL, 1))
    assert found.comparisons == 0
    assert not found.figures
    assert "nothing to explain" in found.headline
    write_study_result(context.folder, found, {}, "", lambda _: None)


def test_gains_of_answers_that_are_no_longer_cut_off():
    before = {"correct": [0, 0, 1, 0, 1], "cut": [1, 1, 0, 0, 0]}
    after = {"correct": [1, 1, 1, 1, 0], "cut": [0, 1, 0, 0, 1]}
    found = cut_off_share(before, after)
    assert (found["difference"], found["fewer_cut"], found["more_cut"]) == pytest.approx((0.4, 0.2, -0.2))
    assert found["by_cut_off"] + found["rest"] == pytest.approx(found["difference"])
    assert (found["rest"], found["still_cut"]) == pytest.approx((0.2, 0.2))


def test_side_effects(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    text = tmp_path / "plain.txt"
    text.write_text("w1 w2 w3 w4 w5 " * 200)
    found = run_side_effects(context, subject, SideEffectsSettings(("small", "other"), text, 5))
    assert [row["searched"] for row in found.table.rows] == [True, False]
    assert found.details["text"] == "plain.txt"
    plain = found.tables["perplexity"].rows[0]
    assert plain["windows"] == 4
    assert "with seed 1" in found.table.notes[0]
    assert found.table.notes[1] == "2 comparisons were made; p, Holm is corrected for all of them, p is not."
    assert plain["low"] <= plain["ratio"] <= plain["high"]
    written(context, found)


def test_plain_text_is_of_all_tasks_and_predicts_something(frozen):
    first, second = small_task().pools["test"][:3], small_task("other", offset=31).pools["test"][:2]
    texts = questions_in_turn([first, second])
    assert texts[:4] == [one.question for one in (first[0], second[0], first[1], second[1])]
    assert len(texts) == 5
    with pytest.raises(TaskError, match="one token"):
        windows(frozen, ["w9"], 10)


def test_perplexity_is_that_of_plain_passes(frozen, subject):
    rows = windows(frozen, ["w1 w2 w3 w4", "w9", "w5 w6 w7 w8 w9 w10 w11"], 10)
    for route in (Route.standard(frozen.layers), subject.route):
        for row, value in zip(rows, surprise(frozen, route, rows), strict=True):
            logits = apply_route(frozen, route)(torch.tensor([row])).logits[0, :-1]
            expected = torch.nn.functional.cross_entropy(logits, torch.tensor(row[1:]), reduction="sum")
            assert value == pytest.approx(expected.item(), rel=1e-4)
    assert all(len(row) > 1 for row in rows)


def test_rows_that_are_no_numbers_are_left_out_of_perplexity(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    text = tmp_path / "plain.txt"
    text.write_text("w1 w2 w3 w4 w5 " * 200)
    found = run_side_effects(context, subject, SideEffectsSettings(("small",), text, 5))
    assert len(found.tables["perplexity"].notes) == 1
    (cell,) = (context.folder.path / "cells").glob("plain-text*")
    kept = json.loads(cell.read_text())
    kept["found"]["route"][0], kept["found"]["standard"][2] = math.nan, math.inf
    cell.write_text(json.dumps(kept))  # as a route is kept whose numbers run over
    some = run_side_effects(context, subject, SideEffectsSettings(("small",), text, 5))
    (row,) = some.tables["perplexity"].rows
    assert (row["windows"], row["left_out"]) == (2, 2)
    whole = windows(frozen, [text.read_text()], 5)
    expected = perplexities([whole[1], whole[3]], {name: [v[1], v[3]] for name, v in kept["found"].items()})
    assert row == {"source": "plain.txt", **expected, "left_out": 2}
    assert "Of 4 rows 2 are left out" in some.tables["perplexity"].notes[1]
    written(context, some)
    kept["found"]["route"] = [math.nan] * 4
    cell.write_text(json.dumps(kept))
    none = run_side_effects(context, subject, SideEffectsSettings(("small",), text, 5))
    assert "no perplexity (none of 4 rows came to finite numbers) on plain.txt" in none.headline
    assert not none.tables["perplexity"].rows
    assert "Of 4 rows 4 are left out" in none.tables["perplexity"].notes[1]
    assert "nan" not in none.tables["perplexity"].markdown() + none.headline
    written(context, none)


# --- stopping and names -------------------------------------------------------------------------------------------


def test_a_study_pauses_between_parts_and_goes_on(tmp_path, frozen):
    with pytest.raises(PausedError, match="goes on where it was"):
        run_transfer(small_context(tmp_path, frozen, minutes=0), TransferSettings(("small", "other")))
    whole = run_transfer(small_context(tmp_path, frozen), TransferSettings(("small", "other")))
    assert math.isfinite(whole.table.rows[0]["difference"])


def test_another_model_of_the_same_name_is_refused(tmp_path, frozen):
    small_context(tmp_path, frozen).search("one", small_context(tmp_path, frozen).config(SMALL, 1))
    other = small_context(tmp_path, small_frozen("qwen2"))
    with pytest.raises(RunError, match="other weights"):
        other.search("two", other.config(SMALL, 1))


def test_a_finished_search_must_be_the_one_that_is_wanted(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    context.search("one", context.config(SMALL, 1))
    idle = dataclasses.replace(context, given_model=None)  # settings are compared without a model
    with pytest.raises(RunError, match=r"other settings \(seed, search\)"):
        idle.search("one", context.config(SMALL, 2, search={"draws": 7}))
    changed = dataclasses.replace(context, given_tasks={"small": small_task("small", offset=31)})
    with pytest.raises(RunError, match="run on other examples than small has now"):
        changed.search("one", context.config(SMALL, 1))
    with pytest.raises(RunError, match="run with other weights"):
        small_context(tmp_path, small_frozen("qwen2")).search("one", context.config(SMALL, 1))
    # Without a model as well: a finished part needs none, and its questions can be compared all the same.
    with pytest.raises(RunError, match="run on other examples than small has now"):
        dataclasses.replace(changed, given_model=None).search("one", context.config(SMALL, 1))


def test_a_main_table_takes_no_cell_of_another_task_or_other_data(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    run_main_table(context, MainTableSettings(("other",), (1,), ("small",), ("random",)))
    place = context.folder.path / "runs" / "small--other" / "random-1"
    header = json.loads((place / "run.json").read_text())
    changed = dataclasses.replace(context, given_tasks={"other": small_task("other", offset=57)})
    with pytest.raises(RunError, match="run on other examples than other has now"):
        run_main_table(changed, MainTableSettings(("other",), (1,), ("small",), ("random",)))
    header["config"]["given"]["task"] = "another"
    (place / "run.json").write_text(json.dumps(header))
    write_curve(place, ())
    with pytest.raises(RunError, match="on another, not of small on other"):
        run_main_table(context, MainTableSettings(("other",), (1,), ("small",), ("random",)))


def test_what_a_method_refuses_is_refused_before_the_first_search(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    tight = dataclasses.replace(context, base=dataclasses.replace(context.base, budget=10))
    with pytest.raises(SettingsError, match="budget = 10 is not allowed"):
        run_main_table(tight, MainTableSettings(("other",), (1,), ("small",), ("random", "rys")))
    assert not list((context.folder.path / "runs").glob("*/*"))


def test_a_study_of_a_route_minds_no_setting_of_a_search(tmp_path, frozen):
    few = BASE.with_changes(search={"iterations": 500})
    context = dataclasses.replace(small_context(tmp_path, frozen), base=few)
    assert len(context.prepared(SMALL, 1).splits.test) > 0


def test_a_file_is_kept_from_the_root(tmp_path, monkeypatch):
    (tmp_path / "mine.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    assert TaskName.parse("mine.jsonl:direct").absolute == f"{tmp_path.resolve() / 'mine.jsonl'}:direct"
    assert TaskName.parse("gsm8k:reasoning").absolute == "gsm8k:reasoning"


def test_cells_beside_those_of_other_weights_are_refused(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    run_main_table(context, MainTableSettings(("other",), (1,), ("small",), ("random",)))
    other = dataclasses.replace(context, given_model=small_frozen("qwen2"))
    with pytest.raises(RunError, match="other weights"):
        run_main_table(other, MainTableSettings(("other",), (1, 2), ("small",), ("random",)))


def test_the_standard_pass_is_scored_by_seed(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    arm = context.search("one", context.config(SMALL, 2))
    assert set(arm.right) >= {STANDARD, SELECTED["macro"]}
    assert len(arm.right[STANDARD]) == len(small_task().pools["test"][:20])


def test_where_a_route_was_searched(subject):
    assert subject.was_searched_on(SMALL)
    assert subject.was_searched_on(TaskName("small", "likelihood"))
    assert not subject.was_searched_on(OTHER)
    direct = dataclasses.replace(subject, task=TaskName("small", "direct"))
    assert not direct.was_searched_on(TaskName("small", "reasoning"))
    assert not dataclasses.replace(subject, is_known=False).was_searched_on(SMALL)


def test_task_names():
    assert TaskName.parse("gsm8k:reasoning") == TaskName("gsm8k", "reasoning")
    assert TaskName.parse("odd:name.csv") == TaskName("odd:name.csv")
    with pytest.raises(SettingsError, match="every task once"):
        parse_task_names(["a", "a"])
