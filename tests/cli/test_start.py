"""What a command imports before it does anything: modules are counted, since seconds depend on the machine."""

import subprocess
import sys

import pytest
import typer.main

from macro_routing.cli.main import make_cli_app

HEAVY = {
    *("torch", "transformers", "datasets", "sklearn", "matplotlib", "numpy", "scipy", "yaml", "pydantic", "jinja2"),
    *("importlib.metadata", "asyncio", "sqlite3", "email.message", "concurrent.futures"),
}
STARTS = {
    "overview": ("main(['--help'])", 200, {*HEAVY, "rich"}),
    "version": ("main(['--version'])", 300, HEAVY - {"importlib.metadata", "email.message"}),
    "route show": ("main(['route', 'show', 'L0-L9 L5-L29 RJ', '--layers', '30'])", 220, {*HEAVY, "rich"}),
    # Its modules are those of the help of every command together.
    "all commands": ("from macro_routing.cli.main import make_cli_app; make_cli_app()", 290, {*HEAVY, "rich"}),
}
MAX_MODULES, MAX_OWN_MODULES = 265, 70
PROGRAM = """
import sys
def main(arguments):
    from macro_routing.cli.main import main
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
{code}
print(*sys.modules, file=sys.stderr)
"""


def _command_paths(group, path=()):
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from _command_paths(command, (*path, name))


COMMANDS = set(_command_paths(typer.main.get_command(make_cli_app()))) - {("lm-eval",)}  # its help is the harness' own


def _imported_by(code):
    command = [sys.executable, "-c", PROGRAM.format(code=code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()


@pytest.mark.parametrize("name", STARTS)
def test_a_command_imports_only_what_it_needs(name):
    code, most, forbidden = STARTS[name]
    modules = _imported_by(code)
    assert not forbidden & set(modules)
    assert len(modules) <= most


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_help_imports_settings_but_nothing_that_runs(path):
    modules = _imported_by(f"main({[*path, '--help']})")
    assert not HEAVY & set(modules)
    assert sum(module.startswith("macro_routing") for module in modules) <= MAX_OWN_MODULES
    if "rich" not in modules:  # older versions of typer show defaults with it
        assert len(modules) <= MAX_MODULES
