"""Run folders that came from somebody else: nothing outside of them is written, nothing in them is believed."""

import json
import os

import pytest

from macro_routing.cli.progress import warn_of_modified_run_files
from macro_routing.errors import MacroError, RunError, SettingsError
from macro_routing.runs import RunConfig, RunFolder, resume_run, run_search
from macro_routing.runs import folder as files
from macro_routing.workers.ray_backend import _make_ray_cluster_error
from macro_routing.workers.worker_settings import WorkerSettings
from tests.runs.small import small_frozen, small_task
from tests.runs.test_run import CONFIG, _StopAfter


@pytest.fixture
def stopped(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_search(
            CONFIG,
            folder,
            frozen=small_frozen(),
            task=small_task(),
            store=tmp_path / "s.sqlite",
            listener=_StopAfter(60),
        )
    return folder


def resume_small(folder):
    return resume_run(folder, frozen=small_frozen(), task=small_task(), store=folder.parent / "s.sqlite")


@pytest.mark.parametrize("name", ["lock", "log.txt"])
def test_a_link_leads_nowhere(stopped, tmp_path, name):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (stopped / name).unlink()
    (stopped / name).symlink_to(precious)
    with pytest.raises(RunError, match=f"{name} is a symbolic link.*remove it"):
        resume_small(stopped)
    assert precious.read_text() == "mine"
    (stopped / name).unlink()
    os.mkfifo(stopped / name)
    with pytest.raises(RunError, match=f"{name} is not a regular file"):
        resume_small(stopped)
    (stopped / name).unlink()
    assert resume_small(stopped).folder == str(stopped)


def test_files_are_never_written_through_links(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "result.json.unfinished").symlink_to(precious)
    folder.write_json(files.RESULT, {"a": 1})
    assert folder.read_json(files.RESULT) == {"a": 1}
    assert precious.read_text() == "mine"


@pytest.mark.parametrize(
    "change", [{"store": 5}, {"splits": None}, {"model": []}, {"config": {}}, {"scope": "none"}], ids=str
)
def test_a_header_of_another_shape_is_named(stopped, change):
    header = json.loads((stopped / files.RUN).read_text())
    (stopped / files.RUN).write_text(json.dumps({**header, **change}))
    with pytest.raises(RunError, match=r"run\.json is damaged.*another --out"):
        resume_small(stopped)
    missing = {name: value for name, value in header.items() if name not in change}
    (stopped / files.RUN).write_text(json.dumps(missing))
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        resume_small(stopped)


def test_a_stop_is_in_the_log(stopped):
    assert "stopped on request" in (stopped / "log.txt").read_text()


def test_files_that_were_changed_later_are_told(stopped, capsys):
    resume_small(stopped)
    warn_of_modified_run_files(stopped)
    assert capsys.readouterr().err == ""
    with (stopped / files.ANSWERS).open("a") as file:
        file.write(" ")
    warn_of_modified_run_files(stopped)
    assert "answers.json was changed after the run had ended" in capsys.readouterr().err


def test_passwords_in_addresses_are_not_shown():
    said = str(_make_ray_cluster_error("ray://user:secret@head:10001", OSError("no route")))
    assert "secret" not in said
    assert "user" not in said
    assert "@head:10001" in said


def test_workers_are_flags_only_and_say_so():
    with pytest.raises(SettingsError, match=r"workers is not part of a configuration.*flag"):
        RunConfig.from_toml_tables({"task": "sciq", "workers": 3}, "mine.toml")
    assert WorkerSettings(workers=1).description == "1 worker, processes of this machine"
    assert WorkerSettings("ray", 2).description == "2 workers, actors on Ray"
    with pytest.raises(MacroError, match=r"above 0 and at most 1e\+300"):
        WorkerSettings(worker_timeout=1e308)
