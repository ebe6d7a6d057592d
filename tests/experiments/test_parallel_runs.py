"""Runs of the tables beside each other: what is missing, how it is asked for, and that all end together."""

import argparse
import importlib
import subprocess
import sys
import time

import pytest

from experiments import method_comparison, parallel_runs, search_quality
from experiments.parallel_runs import (
    METHODS,
    PlannedRun,
    build_command,
    list_all_runs,
    list_missing_runs,
    run_in_parallel,
    share_cores,
)
from experiments.recorded_runs import RECORDED_RUNS, read_records


def test_every_run_of_the_tables_is_one_part():
    names = [part.name for part in list_all_runs()]
    assert len(set(names)) == len(names)
    common = len(search_quality.SETTINGS) * len(search_quality.METHODS) * 3
    own = set(method_comparison.METHODS) - set(search_quality.METHODS)
    assert len(names) == common + len(method_comparison.CASES) * len(own) * 3 + len(method_comparison.PUBLISHED)


def test_what_is_kept_is_not_missing(tmp_path):
    left = list_missing_runs(RECORDED_RUNS, METHODS, [])
    kept = {
        (name, cell["method"], cell["seed"]) for name in {one.folder for one in left} for cell in read_records(name)
    }
    assert not {(one.folder, one.method, one.seed) for one in left} & kept
    every = list_missing_runs(tmp_path, ["rys", "guided"], ["svamp-direct", "sciq-likelihood-rys-published"])
    assert [one.method for one in every] == ["rys"] * 4 + ["guided"] * 3  # methods as they are named, and settings
    assert every[3].folder == "sciq-likelihood-rys-published"
    # Half of a budget is asked for where restarting gains: nowhere, as long as nothing is kept.
    assert not list_missing_runs(tmp_path, METHODS, parallel_runs.HALVES)


@pytest.mark.parametrize("module", ["search_quality", "method_comparison", "half_budget"])
def test_parts_are_asked_for_in_words_that_are_understood(module, tmp_path, monkeypatch, capsys):
    method = "cola" if module == "method_comparison" else "guided"
    only = "svamp" if module == "method_comparison" else "svamp-direct"
    part = PlannedRun("svamp-direct", method, 42, module, ("--only", only))
    (tmp_path / "kept").mkdir()
    given = {
        "runs": tmp_path / "runs",
        "kept": tmp_path / "kept",
        "slots": 4,
        "memory": 0.8,
        "data_dir": tmp_path,
        "small": "none",
    }
    command = build_command(part, argparse.Namespace(model="nowhere", **given), minutes=0)
    assert command[command.index("--share") + 1] == "0.200"
    assert command[:3] == [sys.executable, "-m", f"experiments.{module}"]
    # No minute left: it reads its arguments, runs nothing and shows the table of nothing.
    monkeypatch.setattr(sys, "argv", command[2:])
    importlib.import_module(f"experiments.{module}").main()
    assert "not run" in capsys.readouterr().out


def test_so_many_at_a_time_and_all_end_together(tmp_path, monkeypatch):
    parts = [PlannedRun("quick", "guided", seed, "", ()) for seed in range(3)]
    parts += [
        PlannedRun("long", "rys", 1, "", ()),
        PlannedRun("long", "rys", 2, "", ()),
        PlannedRun("never", "rys", 3, "", ()),
    ]
    alive = []

    def start(part):
        alive[:] = [one for one in alive if one.poll() is None]
        assert len(alive) < 2
        code = f"import sys; sys.exit({part.seed})"
        if part.folder != "quick":  # writes down that it was interrupted, as a search does
            code = f"""
import pathlib, time
try:
    pathlib.Path({str(tmp_path / f"{part.seed}-begun")!r}).touch(); time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path({str(tmp_path / str(part.seed))!r}).touch()
"""
        alive.append(subprocess.Popen([sys.executable, "-c", code], start_new_session=True))
        return alive[-1]

    real = time.monotonic

    def clock():
        """Time is up when both long ones have begun, however long that takes here."""
        return real() + (10_000 if all((tmp_path / f"{seed}-begun").exists() for seed in (1, 2)) else 0)

    monkeypatch.setattr(time, "monotonic", clock)
    ended = list(run_in_parallel(parts, 2, clock() + 5_000, start))
    assert {(part.folder, part.seed): status for part, status in ended} == {
        **{("quick", seed): seed for seed in range(3)},
        ("long", 1): None,
        ("long", 2): None,
    }
    assert [one.returncode for one in alive] == [0, 0]  # nobody had to be killed
    assert (tmp_path / "1").exists()
    assert (tmp_path / "2").exists()
    assert not (tmp_path / "3-begun").exists()


def test_processes_share_the_cores_unless_the_user_has_said_how(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [share_cores(slots)["OMP_NUM_THREADS"] for slots in (1, 5, 40)] == ["16", "3", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert share_cores(5)["OMP_NUM_THREADS"] == "7"


def test_who_stops_it_stops_all():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)

    def start(part):
        if part.folder == "broken":
            raise KeyboardInterrupt
        return process

    running = run_in_parallel(
        [PlannedRun("long", "rys", 1, "", ()), PlannedRun("broken", "rys", 2, "", ())], 2, time.monotonic() + 60, start
    )
    with pytest.raises(KeyboardInterrupt):
        next(running)
    assert process.poll() is not None


def test_mistakes_are_named(monkeypatch):
    for arguments, said in (
        (["--methods", "gided"], "no method: gided; there are guided"),
        (["--settings", "svamp"], "no setting: svamp; there are"),
        (["--seeds", "1,three"], "no seed: three; there are 1, 2, 42"),
        (["--slots", "0"], "one run at a time"),
        (["--memory", "1.5"], "at most 1"),
    ):
        monkeypatch.setattr(sys, "argv", ["parallel_runs", *arguments])
        with pytest.raises(SystemExit, match=said):
            parallel_runs.main()


def test_seeds_are_chosen(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        sys, "argv", ["parallel_runs", "--list", "--kept", str(tmp_path), "--methods", "rys", "--seeds", "42,1"]
    )
    parallel_runs.main()
    listed = capsys.readouterr().out.split()
    assert {name.rsplit("-", 1)[1] for name in listed} == {"1", "42"}


def test_every_run_of_the_tables_is_kept(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["parallel_runs", "--list"])
    parallel_runs.main()
    assert capsys.readouterr().out == "nothing is missing\n"
