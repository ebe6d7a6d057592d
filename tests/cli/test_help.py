"""Help fits a terminal of eighty columns, and says everything there."""

import pytest
import typer.main
from typer.testing import CliRunner

from macro_routing.cli.main import make_cli_app, make_help_only_app


def _commands(command, path=()):
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, (*path, name))


app = make_cli_app()
COMMANDS = dict(_commands(typer.main.get_command(app)))
del COMMANDS[("lm-eval",)]  # its help is the harness' own


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_name_and_sentence_is_whole(path):
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    words = shown.output.split()
    for parameter in COMMANDS[path].params:
        names = [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("-")]
        assert all(name in words or f"{name}," in words for name in names)
    for name, command in getattr(COMMANDS[path], "commands", {}).items():
        assert name in words
        sentence = command.help.split("\n\n")[0].split(". ")[0].rstrip(".").split()
        assert " ".join(sentence) in " ".join(words)


def test_the_overview_has_the_commands_and_their_first_sentences():
    overview = typer.main.get_command(make_help_only_app())
    full = typer.main.get_command(app)
    assert set(overview.commands) == set(full.commands)
    for name, command in full.commands.items():
        assert overview.commands[name].get_short_help_str(999) == command.get_short_help_str(999)


def test_the_harness_command_has_help_without_the_harness(monkeypatch):
    monkeypatch.setattr("macro_routing.cli.lm_eval.importlib.util.find_spec", lambda _name: None)
    shown = CliRunner().invoke(app, ["lm-eval", "--help"])
    assert shown.exit_code == 0
    assert "Run lm-evaluation-harness with routed models" in shown.output
