"""A command that is forked from a warm Python is in nothing that can be seen another than one that is started."""

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
def test_a_command_that_takes_too_long_is_ended_and_the_next_one_runs():
    warm = runner._warm_python()
    warm.settimeout(0.1)
    with pytest.raises(TimeoutError):
        run("planted")
    warm.settimeout(runner.SECONDS)
    assert run("--version").stdout.startswith("macro ")
