"""Several runs on one page."""

import re

import pytest

from macro_routing.errors import RunError
from macro_routing.report import write_figures, write_run_comparison
from tests.report.folders import ATTACK, begin, complete, header, result
from tests.report.test_report import Balance, words


def gained(path, **given):
    """A run with a clear gain."""
    place = complete(path, **given)
    told = result()
    told["comparison"] |= {"p_value": 0.001, "low": 0.04, "high": 0.16}
    place.write_json("result.json", told)
    return place


def compared(tmp_path, *places):
    return write_run_comparison([place.path for place in places], tmp_path / "compare.html").read_text(encoding="utf-8")


def test_runs_are_set_side_by_side(tmp_path):
    places = gained(tmp_path / "a", seed=1), complete(tmp_path / "b", seed=2), begin(tmp_path / "c", 2, seed=3)
    page = compared(tmp_path, *places)
    seen = words(page)
    for part in (
        "1 of 2 finished runs show a gain, 0 a loss, the others no evidence of either.",
        "After Holm's correction for 2 comparisons 1 of the gains remain.",
        "Not tested yet: 1.",
        *("tiny on toys, seed 1", "tiny on toys, seed 3", "not finished: 2 of 3 rounds", "+4.0 to +16.0", "Holm 0.002"),
        *("60.0 ± 0.0", "+10.0 ± 0.0", "No route is chosen yet.", "All runs were tested on the same examples."),
        *("8 → 9", "standard 31.5", 'task = "toys"'),
    ):
        assert part in seen, part
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    names = re.findall(r' id="([^"]*)"', page)
    assert len(set(names)) == len(names)
    assert not re.search(r"src=|href=\"(?!#)|https?:|@import|url\(", page)


def test_a_gain_that_luck_explains_does_not_remain(tmp_path):
    places = [complete(tmp_path / str(number), seed=number) for number in range(3)]
    told = result()
    told["comparison"] |= {"p_value": 0.03, "low": 0.01}
    places[0].write_json("result.json", told)
    seen = words(compared(tmp_path, *places))
    assert "1 of 3 finished runs show a gain" in seen
    assert "0 of the gains remain" in seen
    assert "0.09" in seen


def test_what_differs_is_told(tmp_path):
    first, second = complete(tmp_path / "a"), complete(tmp_path / "b", racing="never")
    other = header(racing="never")
    other["splits"]["test"] = [40, "another-mark"]
    second.write_json("run.json", other)
    seen = words(compared(tmp_path, first, second))
    assert "tested on 2 different sets of examples" in seen
    assert "40 (another-mark)" in seen
    assert "racing exact never" in seen
    assert "Over seeds" not in seen  # they differ in more
    assert "a: tiny on toys, seed 7" in seen  # names alone would not tell them apart


def test_runs_that_are_not_begun_can_be_compared(tmp_path):
    seen = words(compared(tmp_path, begin(tmp_path / "a", 0), begin(tmp_path / "b", 0)))
    assert "0 of 0 finished runs show a gain" in seen
    places = [tmp_path / name for name in "ab"]
    assert write_figures(places, tmp_path / "figures", lambda _: None) == []


def test_foreign_text_is_escaped(tmp_path):
    first, second = complete(tmp_path / "a"), complete(tmp_path / "b")
    hostile = header(task=ATTACK, init_from=ATTACK)
    hostile["model"]["name"] = hostile["scope"]["task"] = ATTACK
    second.write_json("run.json", hostile)
    page = compared(tmp_path, first, second)
    assert page.lower().count("<script") == 1
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


def test_the_figure_of_several_runs(tmp_path):
    places = [gained(tmp_path / "a", seed=1).path, complete(tmp_path / "b", seed=2).path]
    written = write_figures(places, tmp_path / "figures", lambda _: None)
    assert {path.name for path in written} == {f"differences.{kind}" for kind in ("svg", "png", "pdf")}


def test_one_run_is_no_comparison(tmp_path):
    with pytest.raises(RunError, match="two runs or more"):
        write_run_comparison([complete(tmp_path / "a").path], tmp_path / "compare.html")
