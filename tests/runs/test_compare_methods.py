"""Methods compared on a tiny model: the same data, the same budget, resumed, read back, shown."""

import contextlib
import dataclasses
import json
import math
import shutil
import sqlite3

import pytest

from macro_routing.errors import RunError, SettingsError
from macro_routing.report import write_method_comparison
from macro_routing.report.budget_chart import compute_mean_curve, draw_budget_chart
from macro_routing.runs import RunFolder, run_search
from macro_routing.runs.compare_methods import POINTS, _compute_test_accuracy_curve, compare_methods, plan_methods
from macro_routing.runs.comparison_results import (
    SearchCurvePoint,
    describe_shared_run_settings,
    read_method_runs,
    summarize_methods,
)
from macro_routing.runs.methods import METHODS, check_requested_methods_comparable
from macro_routing.search.method_names import METHOD_NAMES
from macro_routing.workers.worker_pool import WorkerPool
from macro_routing.workers.worker_settings import WorkerSettings
from tests.runs.small import small_folder, small_frozen, small_task
from tests.runs.test_per_example_run import CursedCrew
from tests.runs.test_run import CONFIG

BASE = CONFIG.with_changes(budget=700, data={"training": 40, "validation": 10, "test": 20})
SETTINGS = {"epochs": 2, "rounds": 2, "proposals": 8, "max_span": 2, "beam_depth": 2, "max_repeats": 3}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    amateur = str(small_folder(tmp_path_factory.mktemp("amateur") / "model"))
    frozen, task = small_frozen(), small_task()

    def run(names=tuple(METHODS), seeds=(1,), base=BASE):
        known = {"frozen": frozen, "task": task, "store": folder / "s.sqlite"}
        return compare_methods(base, names, seeds, folder, search={**SETTINGS, "amateur": amateur}, **known)

    return folder, run, run()


def test_every_method_runs_within_the_budget(compared):
    _, _, arms = compared
    assert [arm.method for arm in arms] == list(METHOD_NAMES)
    for arm in arms:
        assert arm.asked <= 700
        assert (arm.asked > 0) == (arm.method != "standard")
        assert not arm.curve if arm.method == "cola" else arm.curve[-1].asked == arm.asked


@pytest.mark.parametrize("method", ["guided", "macro", "rys", "drllm", "cola"])
def test_a_plan_says_what_is_asked_for_at_most(method, tmp_path):
    known = {"frozen": small_frozen(), "task": small_task(), "store": tmp_path / "s.sqlite"}
    asked = (BASE, [method], [1], tmp_path / "all")
    (planned,) = plan_methods(*asked, known, SETTINGS)
    assert not planned.finished
    assert not (tmp_path / "all").exists()
    compare_methods(*asked, search=SETTINGS, **known)
    with contextlib.closing(sqlite3.connect(tmp_path / "s.sqlite")) as store:
        (scored,) = store.execute("SELECT count(*) FROM outcomes").fetchone()
    assert 0.1 * planned.max_evaluations < scored <= planned.max_evaluations
    assert plan_methods(*asked, known, SETTINGS) == [dataclasses.replace(planned, finished=True)]


def test_all_meet_the_same_data(compared):
    folder, _, arms = compared
    headers = [json.loads((folder / f"{arm.method}-1" / "run.json").read_text()) for arm in arms]
    assert len({json.dumps(header["splits"]) for header in headers}) == 1
    assert len({arm.result.comparison.baseline for arm in arms}) == 1


def test_the_curve_ends_where_the_run_does(compared):
    _, _, arms = compared
    for arm in (arm for arm in arms if arm.method != "cola"):
        assert arm.curve[-1].route == arm.result.route
        assert arm.curve[-1].accuracy == pytest.approx(arm.result.variants[0].accuracy)


def test_a_route_that_was_given_up_is_on_no_curve(tmp_path):
    frozen, task = small_frozen(), small_task()
    config = CONFIG.with_changes(method="random", seed=4, search={"iterations": 3, "draws": 8})
    known = {"frozen": frozen, "task": task, "store": tmp_path / "s.sqlite"}
    run_search(config, tmp_path / "run", **known)
    place = RunFolder.open(tmp_path / "run")
    whole = list(_compute_test_accuracy_curve(config, place, known, POINTS))
    assert list(_compute_test_accuracy_curve(config, place, known, 1)) == whole[-1:]
    cursed = next(point.route for point in whole[:-1] if point.route != "L0 RJ")
    for name in ("train", "test"):  # where it fails: validation is drawn from the first
        deadly = set(task.pools[name])
        crew = CursedCrew(frozen, lambda route, one, deadly=deadly: str(route) == cursed and one in deadly)
        with WorkerPool(crew, WorkerSettings(workers=1)) as pool:
            known["store"] = tmp_path / f"{name}.sqlite"
            curve = list(_compute_test_accuracy_curve(config, place, {**known, "executor": pool}, POINTS))
        assert pool.counts.quarantined
        assert cursed not in [point.route for point in curve[:-1]]
        assert curve[-1] == whole[-1]  # what the run itself came to stays


def test_the_table_is_of_the_runs(compared):
    _, _, arms = compared
    rows = {row.name: row for row in summarize_methods(arms)}
    assert list(rows)[-2:] == ["standard", "CoLA (oracle)"]
    assert "standard pass" not in rows  # it would be the same line twice
    assert {"MACRO", "MACRO (top-1)", "MACRO (no Vit.)", "RYS", "ShortGPT", "early exit"} <= set(rows)
    for arm in arms:
        if arm.method != "standard":
            row = rows[METHODS[arm.method].title]
            assert row.accuracy == pytest.approx(arm.result.variants[0].accuracy)
            assert row.difference == pytest.approx(arm.result.comparison.difference)
            assert row.low <= row.difference <= row.high
    assert rows["standard"].difference == 0


def test_seeds_that_share_an_example_count_it_once(compared):
    _, _, arms = compared
    macro = arms[0]
    twice = summarize_methods([macro, dataclasses.replace(macro, seed=2)])[0]
    once = summarize_methods([macro])[0]
    assert (twice.low, twice.high) == (once.low, once.high)
    assert twice.seeds == 2


def test_again_it_only_reads_and_a_new_seed_is_added(compared):
    folder, run, arms = compared
    before = (folder / "macro-1" / "result.json").stat().st_mtime_ns
    assert run(names=("macro", "rys")) == [arms[METHOD_NAMES.index(name)] for name in ("macro", "rys")]
    assert (folder / "macro-1" / "result.json").stat().st_mtime_ns == before
    both = run(names=("macro",), seeds=(1, 2))
    assert [arm.seed for arm in both] == [1, 2]


def test_a_folder_can_be_read_without_a_model(compared):
    folder, _, arms = compared
    assert [arm for arm in read_method_runs(folder) if arm.seed == 1] == arms


def test_other_settings_are_not_mixed_in(compared):
    _, run, _ = compared
    with pytest.raises(RunError, match="budget"):
        run(names=("macro",), base=BASE.with_changes(budget=650))


@pytest.fixture
def small(tmp_path):
    """A comparison of its own, of a method that takes a moment."""
    frozen = small_frozen()

    def run(names=("early-exit",), task=None, folder=tmp_path / "small", seeds=(1,), search=None, **changes):
        known = {"frozen": frozen, "task": task or small_task(), "store": tmp_path / "s.sqlite", "search": search}
        return compare_methods(BASE.with_changes(**changes), names, seeds, folder, **known)

    return tmp_path / "small", run


def test_other_data_are_not_mixed_in(small):
    _, run = small
    run()
    with pytest.raises(RunError, match="data are not those it began with"):
        run(names=("early-exit", "shortgpt"), task=small_task(offset=7))


def test_another_budget_is_not_put_beside(small):
    _, run = small
    run()
    with pytest.raises(RunError, match="another budget"):
        run(names=("shortgpt",), budget=100)


def test_one_line_of_the_table_is_of_one_search(small):
    _, run = small
    run(names=("random",), search={"k": 2})
    with pytest.raises(RunError, match="another search"):
        run(names=("random",), seeds=(2,), search={"k": 3})
    run(names=("early-exit",), search={"k": 3})  # another method's settings are its own


def test_what_no_data_could_show_is_no_number_in_json(small):
    folder, run = small
    (arm,) = run(data={"training": 40, "validation": 10, "test": 3})
    text = (folder / "early-exit-1" / "result.json").read_text()
    assert json.loads(text)["detectable"] is None
    assert "Infinity" not in text
    assert arm.result.detectable == math.inf
    assert read_method_runs(folder)[0].result == arm.result


def test_what_one_method_rejects_stops_all_before_the_first(small):
    folder, run = small
    with pytest.raises(SettingsError, match="rys-sweep scores"):
        run(names=("early-exit", "rys"), budget=15)
    assert not folder.exists()


def test_a_curve_of_another_run_or_a_damaged_one_is_drawn_again(small):
    folder, run = small
    (arm,) = run()
    file = folder / "early-exit-1.curve.json"
    for damage in ("", "[1]", '{"run": "x", "points": []}', "{}"):
        file.write_text(damage)
        assert run() == [arm]
    shutil.rmtree(folder / "early-exit-1")  # as one does with a run that is damaged
    (folder / "shortgpt-1").mkdir(exist_ok=True)  # what else lies there does not matter
    (other,) = run(budget=100)
    assert other.curve[-1].asked == other.asked < arm.asked


def test_a_run_that_was_stopped_before_it_began_does_not_block(small):
    folder, run = small
    (folder / "early-exit-1" / "states").mkdir(parents=True)
    (folder / "early-exit-1" / "lock").touch()
    assert run()[0].method == "early-exit"


def test_the_standard_pass_alone_has_a_page_too(small, tmp_path):
    _, run = small
    assert "standard" in write_method_comparison(run(names=("standard",)), tmp_path / "page.html").read_text()


def test_folders_that_cannot_hold_a_comparison(small, tmp_path):
    folder, run = small
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be made"):
        run(folder=tmp_path / "file")
    run()
    with pytest.raises(RunError, match="a run's own folder"):
        run(folder=folder / "early-exit-1")
    write_method_comparison(run(), folder / "compare.html")
    with pytest.raises(RunError, match="repeat `macro compare`"):
        RunFolder.open(folder)


def test_gains_are_differences_of_the_accuracies_shown(compared):
    """Also where seeds share only some of their examples."""
    _, _, arms = compared
    macro = arms[METHOD_NAMES.index("macro")]
    half = dict(list(macro.right["MACRO"].items())[:10])
    renamed = {name: {f"other {key}": value for key, value in rows.items()} for name, rows in macro.right.items()}
    mixed = {
        name: {**{k: v for k, v in macro.right[name].items() if k in half}, **dict(list(rows.items())[10:])}
        for name, rows in renamed.items()
    }
    row = summarize_methods([macro, dataclasses.replace(macro, seed=2, right=mixed)])[0]
    assert row.difference == pytest.approx(row.accuracy - macro.result.comparison.baseline)


def test_the_page_shows_every_method(compared, tmp_path):
    _, _, arms = compared
    page = write_method_comparison(arms, tmp_path / "page.html").read_text()
    for arm in arms:
        assert f"{arm.method}-1/report.html" in page
    assert "Accuracy against budget" in page


def test_the_page_says_what_it_is_of_and_who_has_fewer_seeds(compared, tmp_path):
    folder, _, arms = compared
    told = describe_shared_run_settings(folder)
    assert "examples for training, validation and test" in told
    macro = arms[METHOD_NAMES.index("macro")]
    page = write_method_comparison(
        [*arms, dataclasses.replace(macro, seed=2)], tmp_path / "page.html", told
    ).read_text()
    assert told in page
    assert "1 of 2 seeds" in page
    assert "2 seeds" in page
    assert describe_shared_run_settings(tmp_path) == ""


def test_the_curve_is_over_the_standard_pass_of_its_own_seed(compared):
    _, _, arms = compared
    macro = arms[METHOD_NAMES.index("macro")]
    baseline = macro.result.comparison.baseline
    for gain in (0.0, 0.25):
        moved = dataclasses.replace(macro, curve=tuple(SearchCurvePoint(at, "", baseline + gain) for at in (10, 20)))
        assert ("+20<" in str(draw_budget_chart([moved]).to_html())) == (gain > 0)


def test_the_mean_curve_keeps_the_last_value(compared):
    _, _, arms = compared
    first = dataclasses.replace(arms[0], curve=tuple(SearchCurvePoint(at, "", at / 100) for at in (0, 20, 60)))
    second = dataclasses.replace(arms[0], curve=(SearchCurvePoint(50, "", 0.4),))
    assert compute_mean_curve([first, second]) == [(50, pytest.approx(0.3)), (60, pytest.approx(0.5))]
    one_round = dataclasses.replace(arms[0], curve=(SearchCurvePoint(0, "", 0.2), SearchCurvePoint(100, "", 0.6)))
    assert compute_mean_curve([one_round]) == [
        (100, pytest.approx(0.6))
    ]  # before its only round it had nothing to choose from


@pytest.mark.parametrize(
    ("names", "seeds", "words"),
    [
        (["maccro"], [1], "did you mean 'macro'"),
        ([], [1], "method"),
        (["macro", "macro"], [1], "once"),
        (["macro"], [], "seed"),
    ],
)
def test_what_cannot_be_compared(names, seeds, words):
    with pytest.raises(SettingsError, match=words):
        check_requested_methods_comparable(names, seeds)


def test_too_small_a_budget_says_what_would_do():
    frozen, task = small_frozen(), small_task()
    from macro_routing.runs.prepare import prepare_run

    for method, words in (("macro", "evaluations at least"), ("rys", "must be at least"), ("early-exit", "at least 5")):
        with pytest.raises(SettingsError, match=words):
            prepare_run(BASE.with_changes(method=method, budget=3, search={}), frozen=frozen, task=task)
