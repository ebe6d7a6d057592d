"""The main table, end to end on a tiny model."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from macro_routing.errors import RunError, SettingsError
from macro_routing.runs.comparison_results import read_method_runs, write_budget_curve
from macro_routing.runs.result import SELECTED, STANDARD, TOP_1, TOP_1_ANCHORED
from macro_routing.studies.main_table import (
    _summarize_best_method,
    check_model_names_unique,
    describe_test_sets,
    find_first_searching_method,
    make_main_tables,
    rank_rows,
    run_main_table,
    summarize_methods_by_model,
)
from macro_routing.studies.search_time import make_search_time_table, summarize_search_times
from macro_routing.studies.settings import (
    MainTableSettings,
)
from macro_routing.studies.significance import load_main_table_study_rows
from tests.runs.small import small_frozen, small_task
from tests.studies.contexts import OTHER, WRITTEN, check_written_files, small_context


def test_main_table(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_main_table(context, MainTableSettings(("other",), (1, 2), ("small",), ("macro", "random")))
    assert set(found.tables) == {"table", "significance", "search_time", "best_routes", "truncated"}
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
    truncated = {row["method"]: row["truncated"]["other"] for row in found.tables["truncated"].rows}
    assert truncated.keys() == rows.keys()
    assert truncated["random search"] == pytest.approx(
        np.mean([arm.result.variants[0].truncated_share for arm in mine])
    )
    for name in ("table", "search_time", "truncated"):
        assert found.tables[name].notes[0] == "Seeds 1, 2; test examples: other n = 20."
    data = check_written_files(context, found)
    assert (context.folder.path / "significance.tex").is_file()
    assert load_main_table_study_rows(context.folder.path) == data["details"]["results"]
    # Finished cells are read without the model.
    idle = dataclasses.replace(context, loaded_model=None, minutes=0)
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
    row = next(row for row in summarize_methods_by_model(arms) if row["method"] == TOP_1)
    assert row["accuracy"]["other"] is not None
    assert (row["accuracy"]["written"], row["average"], row["p_holm"]) == (None, None, None)
    gathered = make_main_tables(arms, SELECTED["macro"])
    assert "3 averages" in gathered.headline
    assert all(row["hours"] > 0 for row in summarize_search_times(arms))
    kept = {cell: [dataclasses.replace(arm, selection_seconds=math.nan) for arm in of] for cell, of in arms.items()}
    times = summarize_search_times(kept)
    assert {row["hours"] for row in times} == {None}
    assert "not recorded" in make_search_time_table(times, "").columns[3].format_cell(times[0])
    assert _summarize_best_method([{"kind": "route", "difference": None}]).startswith("No method was run on all tasks")
    check_written_files(context, gathered)
    assert next(one for one in load_main_table_study_rows(context.folder.path) if one["method"] == TOP_1)[
        "accuracy"
    ].keys() == {"other"}


def test_what_is_the_standard_pass_is_not_compared_with_it(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    run_main_table(context, MainTableSettings(("other",), (1, 2), ("small",), ("macro",)))
    arms = {("small", OTHER): read_method_runs(context.folder.path / "runs" / "small--other")}
    for arm in arms["small", OTHER]:
        variants = {variant.name: variant for variant in arm.result.variants}
        # As preset paper reports it in runs with an anchored final set.
        anchored = dataclasses.replace(variants[STANDARD], name=TOP_1_ANCHORED)
        object.__setattr__(arm.result, "variants", (*arm.result.variants, anchored))
        arm.right[TOP_1_ANCHORED] = arm.right[STANDARD]
    row = next(row for row in summarize_methods_by_model(arms) if row["method"] == TOP_1_ANCHORED)
    assert (row["difference"], row["p"], row["p_holm"]) == (0, None, None)
    compared = sum(row.get("p") is not None for row in summarize_methods_by_model(arms))
    table = make_main_tables(arms, SELECTED["macro"]).table
    assert "are not compared with it" in table.notes[1]
    assert str(compared) in table.notes[-1] or compared <= 1


def test_it_is_said_which_seeds_share_their_test_examples():
    def make_run(seed, examples):
        return SimpleNamespace(seed=seed, right={STANDARD: dict.fromkeys(examples, True)})

    shared, own = [make_run(1, "ab"), make_run(2, "ab")], [make_run(1, "ab"), make_run(2, "bc")]
    assert describe_test_sets({("m", OTHER): shared}) == "All seeds of a task have the same test examples. "
    assert describe_test_sets({("m", OTHER): own}).startswith("Every seed has test examples of its own")
    assert describe_test_sets({("m", OTHER): own[:1]}) == ""
    both = describe_test_sets({("m", OTHER): shared, ("m", WRITTEN): own, ("n", OTHER): shared})
    assert both.startswith("Seeds have the same test examples on other; on the other tasks")


def test_models_of_one_name_and_methods_that_compare_nothing_are_rejected():
    with pytest.raises(SettingsError, match="a/tiny and b/tiny/ are both called tiny"):
        check_model_names_unique(["a/tiny", "other", "b/tiny/"])
    assert find_first_searching_method(["standard", "cola", "random", "macro"]) == "random"
    for methods in (["standard"], ["cola"], ["cola", "standard"]):
        with pytest.raises(SettingsError, match="nothing to compare"):
            find_first_searching_method(methods)


def test_ties_share_a_place_and_oracles_have_none():
    values = {"a": 0.5, "b": 0.5004, "c": 0.4, "d": 0.3, "e": 0.2, "oracle": 0.9}
    rows = [
        {"kind": "oracle" if name == "oracle" else "route", "accuracy": {"t": value}, "average": value, "name": name}
        for name, value in values.items()
    ]
    found = {row["name"]: row["ranks"]["t"] for row in rank_rows(rows)}
    assert found == {"a": 1, "b": 1, "c": 2, "d": 3, "e": 0, "oracle": 0}


def test_a_main_table_takes_no_cell_of_another_task_or_other_data(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    run_main_table(context, MainTableSettings(("other",), (1,), ("small",), ("random",)))
    place = context.folder.path / "runs" / "small--other" / "random-1"
    header = json.loads((place / "run.json").read_text())
    changed = dataclasses.replace(context, loaded_tasks={"other": small_task("other", offset=57)})
    with pytest.raises(RunError, match="run on other examples than other has now"):
        run_main_table(changed, MainTableSettings(("other",), (1,), ("small",), ("random",)))
    header["config"]["given"]["task"] = "another"
    (place / "run.json").write_text(json.dumps(header))
    write_budget_curve(place, ())
    with pytest.raises(RunError, match="on another, not of small on other"):
        run_main_table(context, MainTableSettings(("other",), (1,), ("small",), ("random",)))


def test_what_a_method_rejects_is_rejected_before_the_first_search(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    tight = dataclasses.replace(context, base=context.base.with_changes(budget=10))
    with pytest.raises(SettingsError, match="budget = 10 is not allowed"):
        run_main_table(tight, MainTableSettings(("other",), (1,), ("small",), ("random", "rys")))
    assert not list((context.folder.path / "runs").glob("*/*"))


def test_cells_beside_those_of_other_weights_are_rejected(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    run_main_table(context, MainTableSettings(("other",), (1,), ("small",), ("random",)))
    other = dataclasses.replace(context, loaded_model=small_frozen("qwen2"))
    with pytest.raises(RunError, match="other weights"):
        run_main_table(other, MainTableSettings(("other",), (1, 2), ("small",), ("random",)))
