"""The commands' pages hold what the code says, and their examples are commands that exist."""

import shlex
from pathlib import Path
from typing import Annotated

import pytest
import typer.main

from macro_routing.cli.main import make_cli_app

ROOT = Path(__file__).parents[2]
app = make_cli_app()


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import command_pages

    return command_pages


def test_every_option_of_every_command_is_on_its_page(pages):
    written = pages.command_pages(app)
    for name, command in typer.main.get_command(app).commands.items():
        for part, inner in getattr(command, "commands", {"": command}).items():
            page = f"{name}-{part}.md" if f"{name}-{part}.md" in written else f"{name}.md"
            for parameter in inner.params:
                names = [one for one in (*parameter.opts, *parameter.secondary_opts) if one.startswith("-")]
                for one in names or [parameter.metavar or parameter.name.upper()]:
                    if one not in {"--help", "-h"}:
                        assert one in written[page], f"{name}: {one}"


def test_examples_are_understood(pages):
    group = typer.main.get_command(app)
    for example in pages.examples(app):
        _, macro, command = example.rpartition("macro ")
        assert macro, example
        name, *arguments = shlex.split(command)
        found = group.commands[name]
        if hasattr(found, "commands"):
            found, arguments = found.commands[arguments[0]], arguments[1:]
        found.make_context(name, arguments)  # parses and checks, and runs nothing


def test_a_page_that_differs_is_noticed(pages, tmp_path):
    def show(
        word: Annotated[str, typer.Argument(help="What is shown.")],
        count: int = 3,
    ) -> None:
        """Show a word.

        Example: `macro show hello`
        """

    small = typer.Typer()
    small.command()(show)
    written = pages.command_pages(small)
    assert "| `--count` | integer | `3` |" in written["show.md"]
    assert "macro show hello" in written["show.md"]
    pages.write_pages(written, tmp_path)
    assert not pages.stale_pages(written, tmp_path)
    (tmp_path / "show.md").write_text("typed in")
    (tmp_path / "gone.md").write_text("of a command that is no more")
    assert [path.name for path in pages.stale_pages(written, tmp_path)] == ["gone.md", "show.md"]
    pages.write_pages(written, tmp_path)
    assert not pages.stale_pages(written, tmp_path)
