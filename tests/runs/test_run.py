"""Whole runs on a tiny model: what they write, that they can be repeated, resumed and refused."""

import copy
import dataclasses
import json
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from macro_routing.errors import MacroError, ModelError, RunError, SettingsError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.outcomes import ExampleOutcome, RouteEvaluation
from macro_routing.models import freeze_model
from macro_routing.routes import Route, parse_route
from macro_routing.runs import (
    Listener,
    RunConfig,
    RunFolder,
    RunResult,
    make_run_config,
    prepare,
    resume_run,
    run_search,
)
from macro_routing.runs import folder as files
from macro_routing.runs.final_selection import FinalSelection, select_by_decision, select_route
from macro_routing.runs.prepare import prepare_run
from macro_routing.runs.prepared_run import describe_schedule
from macro_routing.runs.result import read_result
from macro_routing.search import Candidate, GuidedSettings, ScoringFailure, StoppedScore
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.workers.worker_settings import WorkerError
from tests.models.tiny import tiny_model
from tests.runs.small import small_frozen, small_task

CONFIG = make_run_config(
    task="small",
    model="small",
    preset="quick",
    method="macro",
    seed=3,
    search={"iterations": 4, "draws": 8, "elite": 2, "k": 3, "epsilon_local": 0.4, "alpha": 0.5},
    data={"training": 60, "validation": 20, "test": 40},
    space={"max_length": 10},
    units={"race": 4, "full": 16},
)


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


def _run(frozen, folder, config=CONFIG, listener=None, **more):
    return run_search(
        config, folder, frozen=frozen, task=small_task(), listener=listener, store=folder.parent / "s.sqlite", **more
    )


def _final(folder):
    """Everything a run decided, without times."""
    state = RunFolder.open(folder).load_last_state()
    return (
        (folder / files.RESULT).read_text().replace(str(folder), ""),
        (folder / files.CANDIDATES).read_text(),
        (folder / files.ANSWERS).read_text(),
        [(str(draw.proposal.route), draw.outcome) for draw in state.draws],
        state.policy_table.tobytes(),
    )


def test_a_run_writes_all_it_promises(frozen, tmp_path):
    folder = tmp_path / "run"
    result = _run(frozen, folder)
    for name in (files.RUN, files.CANDIDATES, files.ANSWERS, files.RESULT, files.ROUTE, files.MANIFEST):
        assert (folder / name).is_file()
    header = json.loads((folder / files.RUN).read_text())
    assert header["config"]["given"]["seed"] == 3
    assert header["config"]["resolved"]["searcher"]["settings"]["draws"] == 8
    assert {name: size for name, (size, _) in header["splits"].items()} == {"train": 60, "validation": 20, "test": 40}
    assert len(list((folder / "states").glob("*.npz"))) == 5
    assert [one.name for one in result.variants] == ["MACRO", "MACRO (top-1)", "MACRO (no Vit.)", "standard"]
    assert RunResult.from_json(json.loads((folder / files.RESULT).read_text())) == result
    assert parse_route((folder / files.ROUTE).read_text(), 6) == result.best_route
    log = (folder / "log.txt").read_text()
    assert "round 4/4" in log
    assert result.verdict in log
    rounds = RunFolder.open(folder).read_round_reports()
    assert [one["number"] for one in rounds] == [1, 2, 3, 4]
    state = RunFolder.open(folder).load_last_state()
    assert any(isinstance(draw.outcome, StoppedScore) for draw in state.draws)
    assert not list(folder.rglob("*.unfinished"))


def test_results_and_rounds_of_earlier_versions_are_read(frozen, tmp_path):
    folder = tmp_path / "run"
    result = _run(frozen, folder)
    rounds = RunFolder.open(folder).read_round_reports()
    for path in (folder / files.RESULT, folder / "rounds" / "001.json"):
        text = path.read_text()
        assert '"truncated_share"' in text
        path.write_text(text.replace('"truncated_share"', '"cut_off"'))
    assert read_result(RunFolder.open(folder)) == result
    assert RunFolder.open(folder).read_round_reports() == rounds


GUIDED = CONFIG.with_changes(method="guided", search={"iterations": 3, "draws": 12, "holdout": 0.5}, budget=600)


def test_a_run_that_is_over_holds_its_store_no_longer(frozen, tmp_path):
    def open_files():
        return [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]

    with pytest.raises(KeyboardInterrupt):
        _run(frozen, tmp_path / "run", listener=_StopAfter(1))
    assert str(tmp_path / "s.sqlite") not in open_files()
    resume_run(tmp_path / "run", frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    assert str(tmp_path / "s.sqlite") not in open_files()


def test_a_guided_run_confirms_on_examples_it_held_back(frozen, tmp_path):
    result = _run(frozen, tmp_path / "run", GUIDED)
    folder = RunFolder.open(tmp_path / "run")
    rounds = folder.read_round_reports()
    assert sum(one["asked"] for one in rounds) <= 600
    choice = json.loads((tmp_path / "run" / files.CANDIDATES).read_text())
    first, *finalists = choice["candidates"]
    assert 1 <= len(finalists) <= 5
    assert first["route"] == "L0 RJ"
    holdout = prepare_run(GUIDED, frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite").searcher.holdout
    for finalist in finalists:
        assert finalist["holdout_n"] == len(holdout) == rounds[-1]["examples"]
        if result.best_route.is_standard:
            assert "it is not shown to gain more than" in finalist["turned_down"]
        assert 0 <= finalist["certainty"] <= 1
    assert first["certainty"] is None
    again = _run(frozen, tmp_path / "again", GUIDED)
    assert (again.route, again.verdict) == (result.route, result.verdict)
    assert _final(tmp_path / "again")[1:] == _final(tmp_path / "run")[1:]


def test_a_finalist_that_passes_the_test_is_deployed(frozen, tmp_path):
    lenient = GUIDED.with_changes(decision={"objective": "speed", "margin": 50})
    result = _run(frozen, tmp_path / "run", lenient)
    assert result.best_route.length < result.layers
    _, *finalists = json.loads((tmp_path / "run" / files.CANDIDATES).read_text())["candidates"]
    (chosen,) = [finalist for finalist in finalists if finalist["route"] == str(result.best_route)]
    assert chosen["p_value"] <= 0.05
    assert not chosen["turned_down"]
    assert "fewer layers" in result.verdict
    assert "a margin of 50 points needs" in (tmp_path / "run" / "log.txt").read_text()


def test_a_finalist_that_could_not_be_run_somewhere_is_not_deployed():
    standard, finalist = (Candidate(parse_route(text, 6)) for text in ("L0 RJ", "L0-L3 L3 RJ"))

    def evaluated(right, failure=""):
        answers = tuple(ExampleOutcome(bool(one), "A") for one in right)
        return lambda route: RouteEvaluation(route, answers, 0, failure)

    control, better = evaluated([0] * 30), evaluated([1] * 30)
    holdout = {standard.route: control(standard.route), finalist.route: better(finalist.route)}
    for failure in ("", "it crashes its workers"):
        validated = {
            standard.route: control(standard.route),
            finalist.route: evaluated([0] * 30, failure)(finalist.route),
        }
        choice = select_by_decision([standard, finalist], validated, holdout, DecisionSettings(), lambda _route: "")
        assert choice.route == (standard if failure else finalist).route
        assert failure in choice.refused


def test_nothing_is_deployed_when_the_standard_pass_could_not_be_run():
    standard, finalist = (Candidate(parse_route(text, 6)) for text in ("L0 RJ", "L0-L3 L3 RJ"))
    answers = tuple(ExampleOutcome(correct=True, prediction="A") for _ in range(30))
    wrong = tuple(ExampleOutcome(correct=False, prediction="") for _ in range(30))
    scored = {
        standard.route: RouteEvaluation(standard.route, wrong, 0, "it crashes its workers"),
        finalist.route: RouteEvaluation(finalist.route, answers, 0, ""),
    }
    choice = select_by_decision([standard, finalist], scored, scored, DecisionSettings(), lambda _route: "")
    assert choice.route == standard.route
    assert "standard pass could not be run: it crashes its workers" in choice.refused


@pytest.mark.parametrize("examples", [3, 9, 12])
def test_a_handful_of_examples_is_enough_to_begin(frozen, examples):
    searcher = make_run_config(task="small").make_searcher(frozen, DecodingSettings("likelihood"), examples, list)
    assert searcher.ask(searcher.make_initial_state()) is not None


def test_draws_that_are_given_without_a_budget_are_the_draws(frozen):
    given = {"draws": 5, "iterations": 3}
    config = make_run_config(task="small", preset="quick", search=given)
    searcher = config.make_searcher(frozen, DecodingSettings("likelihood"), 60, list)
    assert [size.draws for size in searcher.planned_round_sizes[:-1]] == [5, 5, 5]
    assert (
        describe_schedule(searcher)
        == "3 rounds of 5 draws on 10 examples, confirmation of at most 6 routes on 30 examples"
    )
    more = make_run_config(task="small", preset="quick", search=given, budget=2000)
    assert more.make_searcher(frozen, DecodingSettings("likelihood"), 60, list).max_draws_per_round > 5


def test_presets_search_in_their_own_way():
    quick = make_run_config(task="small", preset="quick")
    assert quick.search.iterations == GuidedSettings().iterations
    assert make_run_config(task="small", preset="quick", method="macro").search.iterations == 4
    assert make_run_config(task="small").method == "guided"
    assert make_run_config(task="small", preset="paper").method == "macro"
    assert make_run_config(task="small", preset="quick").method == "guided"
    assert make_run_config(task="small", method="random").method == "random"


def test_a_setting_of_another_search_is_rejected_with_its_name():
    with pytest.raises(SettingsError, match=r"elite.*method = macro"):
        make_run_config(task="small", search={"elite": 3})


def test_the_same_configuration_gives_the_same_run_with_and_without_racing(frozen, tmp_path):
    _run(frozen, tmp_path / "a")
    again = run_search(CONFIG, tmp_path / "b", frozen=frozen, task=small_task(), store=tmp_path / "other.sqlite")
    assert _final(tmp_path / "a") == _final(tmp_path / "b")
    full = _run(frozen, tmp_path / "c", CONFIG.with_changes(racing="never"))
    assert full.route == again.route
    policies = [RunFolder.open(tmp_path / name).load_last_state().policy_table for name in "ac"]
    assert np.array_equal(*policies)


class _StopAfter(Listener):
    def __init__(self, outcomes):
        self.left = outcomes

    def on_outcomes(self, count):
        self.left -= count
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("outcomes", [0, 40, 300, 620, 700])
def test_a_stopped_run_goes_on_to_the_same_end(frozen, tmp_path, outcomes):
    _run(frozen, tmp_path / "whole")
    folder = tmp_path / "x" / "run"
    folder.parent.mkdir()
    try:
        _run(frozen, folder, listener=_StopAfter(outcomes))
    except KeyboardInterrupt:
        assert not RunFolder.open(folder).is_finished
    resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    assert _final(folder) == _final(tmp_path / "whole")
    assert resume_run(folder).route == json.loads((folder / files.RESULT).read_text())["route"]  # finished: only read


def _child(frozen, folder):
    """A process that runs (or goes on with) a search; forked, so that it starts at once."""
    pid = os.fork()
    if pid:
        return pid
    try:
        if (folder / files.RUN).exists():
            resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
        else:
            _run(frozen, folder)
    finally:
        os._exit(0)


@pytest.mark.filterwarnings("ignore:This process")
def test_kill_at_random_moments_changes_nothing(frozen, tmp_path):
    """SIGKILL at twenty random moments and more, resumed each time, ends as a run that was never stopped."""
    start = time.monotonic()
    _run(frozen, tmp_path / "whole")
    lasted = time.monotonic() - start
    rng = random.Random(7)  # noqa: S311
    kills = attempts = 0
    while kills < 20:
        folder = tmp_path / f"killed{attempts}" / "run"
        folder.parent.mkdir()
        attempts += 1
        for _ in range(40):
            pid = _child(frozen, folder)
            time.sleep(rng.uniform(0.02, 0.6 * lasted))
            done, _status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            kills += 1
        if not (folder / files.RUN).exists():
            continue
        resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
        assert _final(folder) == _final(tmp_path / "whole")


def test_two_processes_do_not_share_a_folder(frozen, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        _run(frozen, folder, listener=_StopAfter(50))
    with RunFolder.open(folder).lock(), pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")


def test_a_folder_that_holds_something_is_not_overwritten(frozen, tmp_path):
    _run(frozen, tmp_path / "run")
    with pytest.raises(RunError, match="macro resume"):
        _run(frozen, tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="not an empty folder"):
        _run(frozen, tmp_path / "full")
    with pytest.raises(RunError, match="is not a run's folder"):
        resume_run(tmp_path / "full")


def test_a_folder_that_holds_something_is_rejected_before_a_model_is_loaded(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    config = RunConfig.from_toml_tables(
        {"task": "category", "model": str(tmp_path / "no model"), "preset": "quick"}, "a test"
    )
    with pytest.raises(RunError, match="not an empty folder"):
        run_search(config, tmp_path)
    with pytest.raises(ModelError):
        run_search(config, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_other_data_or_another_model_are_rejected_on_resume(frozen, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        _run(frozen, folder, listener=_StopAfter(50))
    with pytest.raises(RunError, match="data"):
        resume_run(folder, frozen=frozen, task=small_task(offset=1), store=folder.parent / "s.sqlite")
    with pytest.raises(RunError, match="weights"):
        resume_run(folder, frozen=small_frozen("qwen3"), task=small_task(), store=folder.parent / "s.sqlite")


def test_damaged_and_foreign_files_are_named(frozen, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        _run(frozen, folder, listener=_StopAfter(200))
    last = max((folder / "states").glob("*.npz"))
    sound = last.read_bytes()
    last.write_bytes(sound[:50])
    with pytest.raises(RunError, match="remove the file"):
        resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    last.unlink()
    resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    _run(frozen, tmp_path / "whole")
    assert _final(folder) == _final(tmp_path / "whole")
    header = json.loads((folder / files.RUN).read_text())
    (folder / files.RUN).write_text(json.dumps({**header, "format": "macro-run/9", "macro": "7.0"}))
    with pytest.raises(RunError, match=r"version 7\.0 .*'macro-run/9'.*repeat the search in a new folder"):
        resume_run(folder)


def test_what_was_removed_from_a_finished_run_is_made_again(frozen, tmp_path):
    folder = tmp_path / "run"
    _run(frozen, folder)
    whole = _final(folder)
    for name in (files.CANDIDATES, files.ANSWERS, files.RESULT):
        (folder / name).write_text("[]")
        if name == files.RESULT:
            with pytest.raises(RunError, match=r"damaged.*remove it"):
                resume_run(folder)
        (folder / name).unlink()
        resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
        assert _final(folder) == whole
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    assert resume_run(moved).folder == str(moved)
    (moved / files.RUN).write_text("null")
    with pytest.raises(RunError, match="not an object"):
        resume_run(moved)


def test_what_cannot_work_is_rejected_before_a_folder_is_made(frozen, tmp_path):
    for change in (
        {"init_from": "nonsense"},
        {"init_from": "L0 " * 300},
        {"guard": {"tasks": ["counting"]}, "decoding": {"mode": "likelihood"}},
    ):
        with pytest.raises(MacroError):
            _run(frozen, tmp_path / "run", CONFIG.with_changes(**change))
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"init_from": "runs/frist"}, "neither a run's folder, nor a route file, nor a route such as"),
        ({"init_from": str(Path(__file__).parent)}, "neither a run's folder"),
        ({"guard": {"tasks": ["scq"]}}, "did you mean 'sciq'"),
        ({"task": "nothing.csv"}, "there is no file nothing.csv"),
        ({"decoding": {"mode": "likelihood"}, "task": "counting"}, "mode = likelihood cannot be used"),
    ],
)
def test_mistakes_are_told_before_a_model_is_loaded(monkeypatch, changes, says):
    monkeypatch.setattr(prepare, "load_model", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(MacroError, match=says):
        prepare_run(make_run_config(**{"task": "category", **changes}))


def test_names_stay_names_and_files_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "category").mkdir()
    (tmp_path / "smollm2-135m").mkdir()
    (tmp_path / "guard.toml").write_text("")
    config = make_run_config(task="category", guard={"tasks": ["guard.toml", "sciq"]})
    assert (config.task, config.model) == ("category", "smollm2-135m")
    assert list(config.guard.tasks) == [str(tmp_path / "guard.toml"), "sciq"]


def test_a_full_disk_and_a_vanished_folder_are_clear_and_lose_nothing(frozen, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    real = RunFolder.write_text

    def full(self, name, text):
        if name.startswith("rounds/003"):
            with self.explain_write_errors():
                raise OSError(28, "No space left on device")
        real(self, name, text)

    monkeypatch.setattr(RunFolder, "write_text", full)
    with pytest.raises(RunError, match=r"disk is full.*macro resume"):
        _run(frozen, folder)
    monkeypatch.undo()
    resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    _run(frozen, tmp_path / "whole")
    assert _final(folder) == _final(tmp_path / "whole")

    class Remover(Listener):
        def on_round(self, report):  # noqa: ARG002
            import shutil

            shutil.rmtree(tmp_path / "gone")

    with pytest.raises(RunError, match="gone has vanished; what was computed is in the score store"):
        _run(frozen, tmp_path / "gone", listener=Remover())


def test_a_store_that_is_removed_during_a_run_is_told(frozen, tmp_path):
    told = []

    class Remover(Listener):
        def on_round(self, report):  # noqa: ARG002
            (tmp_path / "s.sqlite").unlink(missing_ok=True)

        def on_message(self, text):
            told.append(text)

    _run(frozen, tmp_path / "run", listener=Remover())
    assert [text for text in told if "was removed during the run; its scores are lost, the run is not" in text]


def test_an_interrupted_round_counts_with_all_its_time(frozen, tmp_path):
    class Stop(Listener):
        def on_outcomes(self, count):  # noqa: ARG002
            raise KeyboardInterrupt

    place = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        _run(frozen, place, listener=Stop())
    saved = json.loads((place / files.INTERRUPTED).read_text())
    assert saved["round"] == 1
    assert saved["seconds"] > 0
    (place / files.INTERRUPTED).write_text(json.dumps({"round": 1, "seconds": 3000.0}))
    resume_run(place, frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    seconds = [json.loads(path.read_text())["seconds"] for path in sorted(place.glob("rounds/*.json"))]
    assert 3000 < seconds[0] < 3060
    assert max(seconds[1:]) < 60
    assert not (place / files.INTERRUPTED).exists()


def test_the_minutes_of_a_search_go_on_where_it_is_resumed(frozen, tmp_path):
    class Stop(Listener):
        def on_round(self, report):  # noqa: ARG002
            raise KeyboardInterrupt

    place = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        _run(frozen, place, CONFIG.with_changes(max_minutes=50), listener=Stop())
    (report,) = place.glob("rounds/*.json")
    report.write_text(json.dumps({**json.loads(report.read_text()), "seconds": 3000.0}))
    resume_run(place, frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    assert json.loads((place / files.ENDED).read_text()) == {"reason": "max_minutes", "rounds": 1}


def test_time_that_is_up_still_ends_in_a_choice(frozen, tmp_path):
    result = _run(frozen, tmp_path / "run", CONFIG.with_changes(max_minutes=1e-4))
    assert json.loads((tmp_path / "run" / files.ENDED).read_text())["reason"] == "max_minutes"
    assert result.variants[-1].n == 40


def test_a_search_starts_from_a_route_or_an_earlier_run(frozen, tmp_path):
    route = "L0-L3 L2 RJ"
    _run(frozen, tmp_path / "taught", CONFIG.with_changes(init_from=route))
    first = [d for d in RunFolder.open(tmp_path / "taught").load_last_state().draws if d.round == 0]
    drawn = [d.proposal.route for d in first]
    assert drawn.count(parse_route(route, 6)) >= 1
    _run(frozen, tmp_path / "next", CONFIG.with_changes(init_from=str(tmp_path / "taught"), seed=4))
    other = CONFIG.with_changes(init_from=str(tmp_path / "taught"), space={"max_length": 11})
    with pytest.raises(RunError, match="another route space"):
        _run(frozen, tmp_path / "no", other)
    _run(frozen, tmp_path / "guided", GUIDED.with_changes(init_from=route))
    first = [d for d in RunFolder.open(tmp_path / "guided").load_last_state().draws if d.round == 0]
    assert parse_route(route, 6) in [d.proposal.route for d in first]
    _run(frozen, tmp_path / "next2", GUIDED.with_changes(init_from=str(tmp_path / "guided"), seed=4))
    with pytest.raises(RunError, match="only searches with a policy"):
        _run(frozen, tmp_path / "no2", CONFIG.with_changes(init_from=route, method="random", search={}))


def test_a_search_starts_from_a_route_file_of_its_model_alone(frozen, tmp_path):
    _run(frozen, tmp_path / "first")
    found = tmp_path / "first" / "route.json"
    _run(frozen, tmp_path / "next", CONFIG.with_changes(init_from=str(found), seed=4))
    other = tmp_path / "other.json"
    other.write_text(found.read_text().replace(frozen.weights_id, "of another model"))
    with pytest.raises(ModelError, match=r"other\.json belongs to .* \(of another model\)"):
        _run(frozen, tmp_path / "no", CONFIG.with_changes(init_from=str(other)))


def test_a_search_starts_from_a_run_of_its_model_alone(frozen, tmp_path):
    _run(frozen, tmp_path / "first")
    again = CONFIG.with_changes(init_from=str(tmp_path / "first"), seed=4)
    twin = freeze_model(tiny_model("llama", seed=1), frozen.tokenizer, name="twin")  # the same shape, other weights
    with pytest.raises(ModelError, match=r"first searched on small .* not on twin .* give its route as text"):
        _run(twin, tmp_path / "no", again)
    assert not (tmp_path / "no").exists()
    header = tmp_path / "first" / files.RUN
    header.write_text(header.read_text().replace('"weights_id"', '"weights"'))
    with pytest.raises(RunError, match="damaged"):
        _run(frozen, tmp_path / "no", again)


def _evaluated(route, correct):
    outcomes = [ExampleOutcome(correct=place < correct, prediction="") for place in range(10)]
    return RouteEvaluation(route, tuple(outcomes), 0)


def test_a_winner_that_find_guard_objection_elsewhere_is_turned_down():
    standard, good, better = (parse_route(text, 6) for text in ("L0 RJ", "L0-L3 L3 RJ", "L0 L2 RJ"))
    validated = {standard: _evaluated(standard, 3), good: _evaluated(good, 5), better: _evaluated(better, 7)}
    candidates = [Candidate(route) for route in validated]

    def costs(*expensive):
        return lambda route: "it costs 9 points on x" if route in expensive else ""

    def chosen(objection, among=candidates):
        return select_route(among, validated, lambda _: pytest.fail("no tie"), objection)

    assert chosen(costs()).route == better
    second = chosen(costs(better))
    assert second.route == good
    assert [one["turned_down"] for one in second.candidates] == ["", "", "it costs 9 points on x"]
    assert second.validation_score == {"correct": 5, "n": 10}
    assert chosen(costs(better, good)).route == standard
    none_left = chosen(costs(better, good), candidates[1:])
    assert none_left.route == standard
    assert "turned down" in none_left.refused
    assert FinalSelection.from_json(json.loads(json.dumps(none_left.to_json())), 6) == none_left


def test_guards_measure_the_drop(frozen, tmp_path):
    run = prepare_run(
        CONFIG.with_changes(guard={"tasks": ["category"], "max_drop": 0.0, "examples": 30}),
        frozen=frozen,
        task=small_task(),
        store=tmp_path / "s.sqlite",
    )
    strict = [
        run._find_guard_task_objection(parse_route(text, 6))
        for text in ("L0 RJ", "L0 L5 RJ", "L0 L0 L3 RJ", "L0-L2 L4 RJ")
    ]
    assert strict[0] == ""
    assert all(not reason or "points on category" in reason for reason in strict)


@dataclasses.dataclass(frozen=True, eq=False)
class _GivesUp(Evaluator):
    """Gives one route up on some examples, as workers do; everything else is the real evaluator."""

    route: Route | None = None
    examples: frozenset = frozenset()

    @classmethod
    def like(cls, evaluator, route, examples):
        fields = {field.name: getattr(evaluator, field.name) for field in dataclasses.fields(Evaluator)}
        return cls(**fields, route=route, examples=frozenset(examples))

    def _score_work_items(self, items):
        self.report("memory ran out")
        for item in items:
            for part in item.split_into_single_route_items():
                is_fatal = part.routes[0] == self.route and self.examples & set(part.unit)
                yield part, ScoringFailure("crashed its worker") if is_fatal else self.run_work_item(part)


def test_a_route_that_could_not_be_tested_has_no_result(frozen, tmp_path):
    whole = _run(frozen, tmp_path / "whole")
    chosen, variant, *_ = whole.variants
    assert variant.route not in (chosen.route, whole.variants[-1].route)

    def end(text, folder):
        run = prepare_run(CONFIG, frozen=frozen, task=small_task(), store=folder.with_suffix(".sqlite"))
        evaluator = _GivesUp.like(run.evaluator, parse_route(text, 6), run.splits.test)
        place = RunFolder.create(folder)
        with place.lock():
            place.write_json(files.RUN, run.make_run_json_contents())
            return dataclasses.replace(run, evaluator=evaluator).run(place)

    with pytest.raises(WorkerError, match="could not be tested: crashed its worker; fix the cause and resume"):
        end(chosen.route, tmp_path / "chosen")
    assert not (tmp_path / "chosen" / files.ANSWERS).exists()
    resume_run(tmp_path / "chosen", frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    assert _final(tmp_path / "chosen") == _final(tmp_path / "whole")
    left = end(variant.route, tmp_path / "variant")
    assert [one for one in whole.variants if one.route != variant.route] == list(left.variants)
    assert variant.route not in json.loads((tmp_path / "variant" / files.ANSWERS).read_text())["routes"]
    log = (tmp_path / "variant" / "log.txt").read_text()
    assert "is left out" in log
    assert "memory ran out" in log


def test_a_route_that_could_not_be_run_on_a_guard_task_is_turned_down_for_that(frozen, tmp_path):
    config = CONFIG.with_changes(guard={"tasks": ["category"], "max_drop": 100.0, "examples": 10})
    run = prepare_run(config, frozen=frozen, task=small_task(), store=tmp_path / "s.sqlite")
    route = parse_route("L0 L5 RJ", 6)
    assert run._find_guard_task_objection(route) == ""
    (guard,) = run.guards.values()
    examples = [one for pool in guard.pools.values() for one in pool]
    evaluator = _GivesUp.like(dataclasses.replace(run.evaluator, store=None), route, examples)
    run = dataclasses.replace(run, evaluator=evaluator)
    assert run._find_guard_task_objection(route) == "it could not be run on category: crashed its worker"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"preset": "slow"}, "preset"),
        ({"method": "magic"}, "method"),
        ({"search": {"draw": 3}}, "did you mean 'draws'"),
        ({"data": {"training": 0}}, "training"),
        ({"space": {"radius": -1}}, "radius"),
        ({"guard": {"max_drop": -1}}, "max_drop"),
        ({"max_minutes": 0}, "max_minutes"),
        ({"racing": "wild"}, "racing"),
        ({"decoding": {"mode": "sing"}}, "mode"),
        ({"loading": {"dtype": "int3"}}, "dtype"),
        ({"seed": -1}, "seed"),
        ({"task": ""}, "task"),
        ({"space": {"layers": 3}}, "layers"),
        ({"guard": {"tasks": "sciq"}}, "list of tasks"),
        ({"guard": {"tasks": [1]}}, "list of tasks"),
        ({"data": {"choices": 5}}, "choices"),
        ({"model": 5}, "model"),
        ({"init_from": ""}, "init_from"),
        ({"loading": {"trust_remote_code": "no"}}, "trust_remote_code"),
    ],
)
def test_impossible_configurations_are_rejected_by_name(change, says):
    with pytest.raises(SettingsError, match=says):
        CONFIG.with_changes(**change)


def test_unknown_keys_of_a_file_are_rejected():
    with pytest.raises(MacroError, match="did you mean 'task'"):
        RunConfig.from_toml_tables({"tsak": "x"}, "file.toml")


def test_a_published_test_size_that_the_data_has_not_is_told(frozen, tmp_path):
    told = []

    class Told(Listener):
        def on_message(self, text):
            told.append(text)

    task = dataclasses.replace(small_task(), test_size=520)
    store = tmp_path / "s.sqlite"
    sizes = {"training": 60, "validation": 20}
    prepare_run(CONFIG.with_changes(data=sizes), frozen=frozen, task=task, listener=Told(), store=store)
    assert any("small has 60 test examples here, 520 are published: accuracies are not" in text for text in told)
    told.clear()
    prepare_run(CONFIG, frozen=frozen, task=task, listener=Told(), store=store)  # which asks for 40 of them
    assert not any("published" in text for text in told)


def test_the_papers_preset_is_the_papers(frozen):
    config = make_run_config(task="small", preset="paper")
    searcher = config.make_searcher(frozen, DecodingSettings("reasoning"), 1000, list)
    settings = searcher.settings
    assert (settings.iterations, settings.draws, settings.elite, settings.k) == (10, 30, 5, 5)
    assert (settings.beta, settings.alpha, settings.temperature, settings.replay) == (1.8262, 0.0397, 1.0, 0.1)
    assert (settings.epsilon_local, settings.epsilon_operator, settings.final_set) == (0.2, 0.0867, "raw")
    assert (searcher.space.radius, searcher.space.window, searcher.space.coefficients) == (5, 6, (1.0,))
    assert searcher.space.max_length == frozen.layers + 12
    decoding = config.resolve_decoding(small_task())
    assert (decoding.mode, decoding.reasoning_budget, decoding.answer_budget) == ("reasoning", 400, 128)
    assert (config.resolve_data_sizes(frozen).training, config.resolve_data_sizes(frozen).validation) == (1000, 100)
    mixtral = dataclasses.replace(small_frozen("mixtral"))
    assert config.make_searcher(mixtral, DecodingSettings("reasoning"), 1000, list).settings.final_set == "anchored"
    assert config.resolve_data_sizes(mixtral).validation == 200
    tokenizer = copy.deepcopy(frozen.tokenizer)
    tokenizer.bos_token = "<｜begin▁of▁sentence｜>"
    deepseek = dataclasses.replace(frozen, tokenizer=tokenizer)
    assert config.make_searcher(deepseek, DecodingSettings("reasoning"), 1000, list).settings.final_set == "anchored"
