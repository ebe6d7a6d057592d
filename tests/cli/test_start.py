"""What a command imports before it does anything: modules are counted, since seconds depend on the machine."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "matplotlib", "datasets", "sklearn", "scipy.special", "scipy.stats", "rich.console"}
NUMPY = {"numpy", "scipy"}
STARTS = {
    "overview": ("main(['--help'])", 235, HEAVY | NUMPY | {"pydantic", "yaml"}),
    "route show": ("main(['route', 'show', 'L0-L9 L5-L29 RJ', '--layers', '30'])", 345, HEAVY | NUMPY),
    # Its modules are those of the help of every command together.
    "all commands": ("from macro_routing.cli.main import make_cli_app; make_cli_app()", 585, HEAVY),
}
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


@pytest.mark.parametrize("name", STARTS)
def test_a_command_imports_only_what_it_needs(name):
    code, most, forbidden = STARTS[name]
    command = [sys.executable, "-c", PROGRAM.format(code=code)]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()
    assert not forbidden & set(modules)
    assert len(modules) <= most
