"""The tables of searches on planted problems: every line is a search that begins, and lines are compared in pairs."""

import json
import sys

import pytest

from benchmarks.record import ROOT
from experiments.planted_searches import (
    KNOWN_TARGET,
    METHODS,
    PLANTED,
    TABLES,
    format_difference_with_interval,
    main,
    make_row,
    merge_rows,
    read_runs,
    run_search,
)
from tests.experiments.test_recorded_runs import rounded

RAW = ROOT / "experiments" / "raw"


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, searches in TABLES.items() for name in searches])
def test_every_line_is_a_search_that_begins(table, name):
    searcher = TABLES[table][name](0)
    asked = searcher.ask(searcher.make_initial_state())
    assert asked is not None
    assert len(asked.proposals) > 1


def test_the_lines_of_a_table_are_different_searches():
    for searches in TABLES.values():
        assert len({make(0).identity for make in searches.values()}) == len(searches)


def test_the_first_lines_are_the_searches_that_are_judged():
    assert TABLES["parts"]["guided"](5) == METHODS["guided"](5)


def test_differences_are_taken_problem_by_problem():
    def runs(shares):
        facts = {"sort": PLANTED, "found": False, "seconds": 1.0, "kind": "moves", "edits": 1, "level": "easy"}
        return [{**facts, "seed": seed, "share": share} for seed, share in enumerate(shares)]

    first = make_row("first", runs([0.0, 0.5, 1.0]))
    assert format_difference_with_interval(first["raw"], runs([0.1, 0.6, 1.1])) == "+0.100 ± 0.000"
    assert (
        format_difference_with_interval(first["raw"], [*runs([0.0, 0.5, 0.7]), {"sort": "nothing"}]) == "-0.100 ± 0.196"
    )


def test_a_problem_gives_the_same_every_time():
    repeated = [{**run_search(("paper", 3, PLANTED), table=""), "seconds": 0} for _ in range(2)]
    assert repeated[0] == repeated[1]
    assert {"share", "found", "level", "edits"} <= set(repeated[0])
    assert run_search((KNOWN_TARGET, 3, PLANTED), table="")["share"] in (0.0, pytest.approx(1.0))


def test_new_lines_come_beside_those_of_a_record_and_in_place_of_their_own(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"results": [{"search": "a", "share": 1}, {"search": "c", "share": 2}]}))
    found = merge_rows(path, [{"search": "b", "share": 3}, {"search": "c", "share": 4}], ["a", "b", "c"])
    assert [(row["search"], row["share"]) for row in found] == [("a", 1), ("b", 3), ("c", 4)]


@pytest.mark.parametrize(("name", "count"), [("guided", 1750), (KNOWN_TARGET, 1000)])
def test_the_judged_lines_are_made_of_the_kept_runs(name, count):
    data = ROOT / "docs" / "data"

    def recorded(file):
        results = json.loads((data / file).read_text(encoding="utf-8"))["results"]
        return [result for result in results if result["search"] == name]

    runs = [run for (search, _, _), run in read_runs(RAW / "planted_family.jsonl").items() if search == name]
    assert len(runs) == count
    (judged,) = recorded("planted_family.json")
    assert rounded(make_row(name, runs)) == rounded({key: value for key, value in judged.items() if key != "against"})


def test_the_lines_of_the_parts_are_made_of_the_kept_runs():
    data = ROOT / "docs" / "data"
    kept = read_runs(RAW / "planted_parts.jsonl").values()
    for judged in json.loads((data / "planted_parts.json").read_text(encoding="utf-8"))["results"]:
        runs = [run for run in kept if run["search"] == judged["search"]]
        expected = {key: value for key, value in judged.items() if key != "against"}
        assert rounded(make_row(judged["search"], runs)) == rounded(expected)


@pytest.mark.parametrize(("option", "value"), [("--first", "-5"), ("--seeds", "0"), ("--processes", "0")])
def test_counts_that_no_table_has_are_refused_before_a_search_begins(monkeypatch, option, value):
    monkeypatch.setattr(sys, "argv", ["planted_family", "--parts", option, value])
    with pytest.raises(SystemExit, match=rf"{option}: \d is the least"):
        main()
