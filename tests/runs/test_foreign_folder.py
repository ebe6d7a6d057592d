"""Resuming a folder that comes from somebody else: it runs no code and writes nowhere else unless the call says so."""

import json
import shutil

import pytest

from macro_routing.errors import MacroError, RunError
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.runs import Listener, make_run_config, resume_run, run_search
from macro_routing.runs.folder import CANDIDATES, RUN
from macro_routing.runs.trusted_code import list_trust_flags
from macro_routing.tasks.catalog import load_task
from macro_routing.tasks.task_files import find_own_grader
from tests.runs.small import small_folder, small_frozen, small_task, write_task_file


class _Stop(Listener):
    def on_round(self, report):  # noqa: ARG002
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run that was stopped after its first round, on a model folder and a task with a grader of its own."""
    place = tmp_path_factory.mktemp("begun") / "place"
    place.mkdir()
    write_task_file(place / "data.jsonl")
    (place / "g.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(place / 'imported')!r}).touch()\n"
        "def judge(text, answer, choices):\n    return text.strip() == answer\n"
    )
    task = place / "task.toml"
    task.write_text('file = "data.jsonl"\nkind = "text"\nquestion = "q"\nanswer = "a"\ngrader = "g.py:judge"\n')
    config = make_run_config(
        str(task),
        str(small_folder(place / "model")),
        "quick",
        data={"training": 30, "validation": 10, "test": 20},
        decoding={"mode": "direct", "answer_budget": 2},
    )
    with pytest.raises(KeyboardInterrupt):
        run_search(config, place / "run", listener=_Stop(), store=place / "scores.sqlite")
    (place / "imported").unlink()
    shutil.copytree(place, place.with_name("kept"))
    return place, config


@pytest.fixture
def begun(kept):
    """That run in its folder, as it was: every test changes it."""
    place, config = kept
    shutil.rmtree(place)
    shutil.copytree(place.with_name("kept"), place)
    return place, config


def _change_header(folder, **changes):
    header = json.loads((folder / RUN).read_text())
    for name, value in changes.items():
        table = header
        *parents, last = name.split("__")
        for parent in parents:
            table = table[parent]
        table[last] = value
    (folder / RUN).write_text(json.dumps(header))


def test_a_grader_is_imported_only_when_this_call_trusts_it(begun):
    place, config = begun
    with pytest.raises(RunError, match=r"needs the grader in .*g\.py; if you trust that code, add --trust-grader"):
        resume_run(place / "run")
    assert not (place / "imported").exists()
    assert list_trust_flags(config) == ["--trust-grader"]
    resume_run(place / "run", trust_grader=True, store=place / "scores.sqlite")
    assert (place / "imported").exists()


def test_the_grader_of_a_guard_task_is_not_imported_though_the_task_is_given(begun):
    place, _ = begun
    _change_header(place / "run", config__given__guard={"tasks": [str(place / "task.toml")]})
    with pytest.raises(RunError, match=r"needs the grader in .*g\.py"):
        resume_run(place / "run", task=load_task("category"))
    assert not (place / "imported").exists()


@pytest.mark.parametrize("name", ["task.toml", ".toml"])
def test_a_grader_is_found_wherever_a_task_file_is_read(tmp_path, name):
    (tmp_path / name).write_text('file = "data.jsonl"\ngrader = "g.py:judge"\n')
    assert find_own_grader(str(tmp_path / name)) == tmp_path / "g.py"
    assert find_own_grader(str(tmp_path / "none.toml")) is None
    assert find_own_grader("category") is None


def test_code_of_a_model_runs_only_when_this_call_trusts_it(begun):
    place, _ = begun
    _change_header(place / "run", config__given__loading={"trust_remote_code": True})
    config = json.loads((place / "model" / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
    (place / "model" / "config.json").write_text(json.dumps(config))
    (place / "model" / "evil.py").write_text(f"open({str(place / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(RunError, match=r"needs code that comes with the model .*add --trust-remote-code"):
        resume_run(place / "run", trust_grader=True)
    assert not (place / "ran").exists()


def test_a_store_elsewhere_is_used_only_where_this_call_names_it(begun):
    place, _ = begun
    _change_header(place / "run", store=str(place / "elsewhere" / "x.sqlite"))
    with pytest.raises(RunError, match=r"names the score store .*x\.sqlite, .* name it with --store"):
        resume_run(place / "run", trust_grader=True)
    assert not (place / "elsewhere").exists()
    ScoreStore(place / "mine.sqlite").close()  # somebody's folder must not add to it either
    before = (place / "mine.sqlite").read_bytes()
    _change_header(place / "run", store=str(place / "mine.sqlite"))
    with pytest.raises(RunError, match=r"names the score store .*mine\.sqlite, .* name it with --store"):
        resume_run(place / "run", trust_grader=True)
    assert (place / "mine.sqlite").read_bytes() == before
    resume_run(place / "run", trust_grader=True, store=place / "elsewhere" / "x.sqlite")
    assert (place / "elsewhere" / "x.sqlite").is_file()


@pytest.mark.parametrize("part", ["states", "rounds"])
def test_a_link_is_never_written_through(begun, part):
    place, _ = begun
    (place / "outside").mkdir()
    (place / "run" / part).rename(place / "kept")
    (place / "run" / part).symlink_to(place / "outside")
    with pytest.raises(RunError, match=f"{part} is a symbolic link, which is never written through"):
        resume_run(place / "run", trust_grader=True)
    assert not list((place / "outside").iterdir())


class _StopAtTest(Listener):
    def on_stage(self, stage, evaluations):  # noqa: ARG002
        if stage == "test":
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def stopped_at_test(tmp_path_factory):
    """Gives a run of a method that was stopped before its test, as it was, and its model; each is searched once."""
    place, frozen = tmp_path_factory.mktemp("stopped"), small_frozen()

    def restore(method):
        folder, kept = place / "run", place / method
        if not kept.exists():
            shutil.rmtree(folder, ignore_errors=True)
            config = make_run_config(
                "category", "small", "quick", method=method, data={"training": 30, "validation": 10}
            )
            run = {"frozen": frozen, "task": small_task(), "store": place / "s.sqlite"}
            with pytest.raises(KeyboardInterrupt):
                run_search(config, folder, listener=_StopAtTest(), **run)
            shutil.copytree(folder, kept)
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        return folder, frozen

    return restore


_NO_NUMBER = [{"route": "L0 RJ", "correct": "x", "n": 1}]
_NO_SCORE = [{"route": "L0 RJ", "correct": None, "n": 1}]
_DECIDED = {"route": "L0 RJ", "correct": 1, "n": 1, "holdout_n": 1, "p_value": None, "required_gain": None}
_NO_HOLDOUT = [{**_DECIDED, "holdout": "x"}]
_NO_P_VALUE = [{**_DECIDED, "holdout": 1, "p_value": "x"}]


@pytest.mark.parametrize(
    ("method", "damage"),
    [
        *(("guided", damage) for damage in ([0], _NO_NUMBER, _NO_SCORE, _NO_HOLDOUT, _NO_P_VALUE)),
        ("macro", [{}]),
        ("random", {"a": 1}),
        ("rys", None),
        ("shortgpt", "x"),
    ],
)
def test_damaged_candidates_of_an_unfinished_run_are_explained(stopped_at_test, method, damage):
    folder, frozen = stopped_at_test(method)
    values = json.loads((folder / CANDIDATES).read_text())
    (folder / CANDIDATES).write_text(json.dumps({**values, "candidates": damage}))
    with pytest.raises(MacroError, match=r"candidates\.json is damaged .*remove it and `macro resume"):
        resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
    (folder / CANDIDATES).unlink()
    resume_run(folder, frozen=frozen, task=small_task(), store=folder.parent / "s.sqlite")
