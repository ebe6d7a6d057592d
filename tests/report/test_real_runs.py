"""Pages of runs that really ran, without a browser."""

import re

import pytest

from macro_routing.report import write_figures, write_report, write_run_comparison
from macro_routing.runs import make_run_config, run_search
from tests.report.test_report import words
from tests.runs.small import small_frozen, small_task


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for method in ("macro", "random"):
        config = make_run_config(
            task="small",
            model="small",
            preset="quick",
            method=method,
            seed=5,
            search={"iterations": 2, "draws": 6, "k": 3},
            data={"training": 20, "validation": 8, "test": 20},
        )
        store = folder / "s.sqlite"
        run_search(config, folder / method, frozen=small_frozen(), task=small_task(), store=store)
    return folder / "macro", folder / "random"


def test_a_search_with_a_policy_shows_it_round_by_round(runs):
    seen = words(write_report(runs[0]).read_text(encoding="utf-8"))
    assert "Policy per round" in seen
    assert re.search(r"the fastest of \d+ turns on cpu", seen)
    assert "Memory was not measured" in seen


def test_a_search_without_a_policy_has_a_page_without_one(runs, tmp_path):
    seen = words(write_report(runs[1]).read_text(encoding="utf-8"))
    assert "random search" in seen
    assert "Policy per round" not in seen
    written = write_figures([runs[1]], tmp_path, lambda _: None)
    assert "policy" not in {path.stem for path in written}


def test_methods_can_be_compared(runs, tmp_path):
    seen = words(write_run_comparison(runs, tmp_path / "both.html").read_text(encoding="utf-8"))
    assert "method macro random" in seen
    assert "All runs were tested on the same examples." in seen
