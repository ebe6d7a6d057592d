"""A command that is forked from a warm Python is in nothing that can be seen another than one that is started."""

import contextlib
import functools
import time
from pathlib import Path

import pytest

from tests.cli import runner
from tests.cli.runner import run


@pytest.mark.parametrize(
    ("arguments", "stdin", "status"),
    [
        (["--version"], None, 0),
        (["route", "--help"], None, 0),
        (["route", "show", "-", "-n", "4"], "L0-L3 L1 RJ\n", 0),
        (["route", "show", "L0 RJ"], None, 2),
        (["route", "show", "here.txt", "-n", "4"], None, 0),
        (["models", "--json"], None, 0),
        (["compare", "--task", "category", "--methods", "macro,macro"], None, 2),
    ],
)
def test_forked_and_started_commands_say_the_same(arguments, stdin, status, tmp_path):
    (tmp_path / "here.txt").write_text("L0-L2 L1 RJ")
    forked, started = (
        run(*arguments, stdin=stdin, status=status, cwd=tmp_path, fresh=fresh) for fresh in (False, True)
    )
    assert (forked.stdout, forked.stderr, forked.args) == (started.stdout, started.stderr, started.args)


@pytest.mark.skipif(not runner.CAN_FORK, reason="all commands are started here")
@pytest.mark.parametrize("seconds", [0.001, 0.3])  # before it is forked, while it runs
def test_a_command_that_takes_too_long_is_ended_and_the_next_one_hears_its_own_answer(seconds, monkeypatch):
    # Not the one that other tests use: to load the libraries again for them takes seconds.
    monkeypatch.setattr(runner, "_warm_python", functools.cache(lambda: runner._WarmPython(libraries=["--cold"])))
    run("--version")
    warm = runner._warm_python().process
    with monkeypatch.context() as patience:
        patience.setattr(runner, "SECONDS", seconds)
        with pytest.raises(TimeoutError):
            run("planted")
    end = time.monotonic() + 120  # who is killed is gone a moment later
    while left := _running(warm.pid):
        assert time.monotonic() < end, left
    run("route", "show", "L0 RJ", status=2)
    assert run("--version").stdout.startswith("macro ")
    runner._warm_python().end()


def _running(group):
    """The processes of a group that have not ended."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, of, *_ = (process / "stat").read_text().rpartition(")")[2].split()  # names may hold anything
            if int(of) == group and state not in "ZX":
                found.append(process.name)
    return found
