"""Runs kept in the repository: read back as they were, never replaced, measured again, behind what the pages say."""

import dataclasses
import json
from itertools import product
from pathlib import Path

import pytest

from benchmarks.record import ROOT
from experiments import half_budget, method_comparison, recorded_runs, search_quality
from experiments.recorded_runs import (
    RECORDED_RUNS,
    is_recorded,
    pack_verdicts,
    read_recorded_runs,
    read_records,
    read_test_sets,
    record_runs,
    run_from_record,
    unpack_verdicts,
)
from macro_routing.runs.compare_methods import compare_methods
from macro_routing.runs.comparison_results import read_method_runs, summarize_methods
from tests.runs.small import small_frozen, small_task
from tests.runs.test_compare_methods import BASE, SETTINGS

COMPARED = ("macro", "rys", "cola", "drllm")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    known = {"frozen": small_frozen(), "task": small_task(), "store": folder / "s.sqlite"}
    compare_methods(BASE, COMPARED, (1, 2), folder / "small", search=SETTINGS, **known)
    return folder


@pytest.mark.parametrize("verdicts", [[], [False], [True], [False, False, True], [True] * 9, [False] * 17])
def test_verdicts_are_read_back(verdicts):
    assert unpack_verdicts(pack_verdicts(verdicts)) == verdicts


def test_a_kept_comparison_has_the_table_that_it_had(runs, tmp_path):
    log = runs / "small" / "macro-1" / "log.txt"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join("2999" + line[4:] if line[21:].startswith("test:") else line for line in lines))
    assert record_runs(runs, tmp_path) == 8
    before, after = read_method_runs(runs / "small"), read_recorded_runs("small", tmp_path)
    assert summarize_methods(after) == summarize_methods(before)
    assert before[0].selection_seconds > 1e9
    # All but the curves and the place of the folders is kept.
    for arm, kept in zip(before, after, strict=True):
        result = dataclasses.replace(arm.result, folder="")
        assert kept == dataclasses.replace(arm, result=result, curve=())
    oracles = [cell for cell in read_records("small", tmp_path) if "oracle" in cell]
    assert [cell["method"] for cell in oracles] == ["cola", "cola"]


def test_what_is_kept_is_not_replaced(runs, tmp_path):
    record_runs(runs, tmp_path)
    text = (tmp_path / "small.jsonl").read_text()
    (tmp_path / "small.jsonl").write_text(text.replace('"seconds": ', '"seconds": 9'))
    changed = (tmp_path / "small.jsonl").read_text()
    assert record_runs(runs, tmp_path) == 0
    assert (tmp_path / "small.jsonl").read_text() == changed != text
    assert is_recorded("small", "rys", 2, tmp_path)
    assert not is_recorded("small", "rys", 3, tmp_path)
    assert not is_recorded("other", "rys", 2, tmp_path)


def test_runs_of_something_else_are_refused(runs, tmp_path):
    record_runs(runs, tmp_path)
    changed = (tmp_path / "small.jsonl").read_text().replace('"budget": 700', '"budget": 701').splitlines()
    (tmp_path / "small.jsonl").write_text(changed[0] + "\n")
    with pytest.raises(SystemExit, match="another model or other settings"):
        record_runs(runs, tmp_path)


def test_routers_with_their_published_sizes_are_kept_beside_other_methods():
    def make_record(method, budget, preset="paper"):
        return {"method": method, "model": "m", "settings": {"task": "t", "preset": preset, "budget": budget}}

    place = Path("place")
    recorded_runs._check_same_settings([make_record("macro", 38000), make_record("drllm", None)], place)
    for other in (make_record("guided", None), make_record("drllm", None, "default")):
        with pytest.raises(SystemExit, match="another model or other settings"):
            recorded_runs._check_same_settings([make_record("macro", 38000), other], place)


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: text + "\n\n", lambda text: text * 2])
def test_a_damaged_file_is_named_with_its_line(runs, tmp_path, damage):
    record_runs(runs, tmp_path)
    path = tmp_path / "small.jsonl"
    path.write_text(damage(path.read_text()))
    with pytest.raises(SystemExit, match=r"small\.jsonl, line \d+"):
        read_records("small", tmp_path)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match="not a folder"):
        record_runs(tmp_path / "nowhere")
    with pytest.raises(SystemExit, match="not a folder of kept runs"):
        read_recorded_runs("small", tmp_path / "nowhere")
    with pytest.raises(SystemExit, match="no setting: svmap; there are"):
        search_quality.parse_settings("svmap")
    with pytest.raises(SystemExit, match="no task of this table: openbookqa"):
        method_comparison.parse_tasks("sciq, openbookqa")
    assert method_comparison.parse_tasks("sciq, svamp") == ["sciq", "svamp"]


def test_a_part_of_a_table_leaves_the_rest_to_others():
    parser = method_comparison.make_parser(None, "runs")
    part = parser.parse_args(["--methods", "rys, cola", "--seeds", "42"])
    method_comparison.check_selection(part, method_comparison.METHODS)
    assert [
        run
        for run in product(method_comparison.METHODS, method_comparison.SEEDS)
        if method_comparison.is_selected(part, *run)
    ] == [
        ("rys", 42),
        ("cola", 42),
    ]
    assert all(
        method_comparison.is_selected(parser.parse_args([]), *run)
        for run in product(method_comparison.METHODS, method_comparison.SEEDS)
    )
    with pytest.raises(SystemExit, match="no method of this table: cola; there are guided"):
        method_comparison.check_selection(part, search_quality.METHODS)
    with pytest.raises(SystemExit, match="no seed of this table: 3; there are 1, 2, 42"):
        method_comparison.check_selection(parser.parse_args(["--seeds", "1,3"]), method_comparison.METHODS)


def test_a_cost_that_was_not_recorded_is_no_number(runs, tmp_path):
    record_runs(runs, tmp_path)
    cell = read_records("small", tmp_path)[0]
    sets = read_test_sets(tmp_path)
    arm = run_from_record({**cell, "asked": None}, sets)
    assert arm.asked != arm.asked
    assert dataclasses.replace(arm, asked=cell["asked"]) == run_from_record(cell, sets)


@pytest.mark.parametrize(
    ("record", "made"),
    [
        ("search_quality.json", lambda: search_quality.make_rows(RECORDED_RUNS)),
        ("search_quality_summary.json", lambda: search_quality.make_summary_rows(RECORDED_RUNS)),
        ("search_quality_answers.json", lambda: search_quality.make_answer_rows(RECORDED_RUNS)),
        ("search_quality_earlier.json", lambda: search_quality.make_earlier_rows(RECORDED_RUNS)),
        ("search_cost.json", lambda: half_budget.make_rows(RECORDED_RUNS)),
        (
            "peers.json",
            lambda: [
                line
                for case in method_comparison.CASES
                for line in method_comparison.make_table_rows(RECORDED_RUNS, *case)
            ],
        ),
        ("peers_oracle.json", lambda: method_comparison.make_oracle_rows(RECORDED_RUNS)),
    ],
)
def test_the_records_are_made_of_what_is_kept(record, made):
    recorded = json.loads((ROOT / "docs" / "data" / record).read_text(encoding="utf-8"))["results"]
    assert rounded(made()) == rounded(recorded)


def rounded(values):
    """As JSON gives it back, without the last digits, which depend on the machine."""
    return json.loads(json.dumps(values), parse_float=lambda number: round(float(number), 9))
