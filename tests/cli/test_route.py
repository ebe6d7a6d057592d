import json

import pytest

from tests.cli.runner import run


def test_show_prints_the_facts():
    shown = run("route", "show", "L0-L7 L3-L9 RJ", "--layers", "28")
    assert "L0-L7 L3 RJ" in shown.stdout
    assert "33 applications on 28 layers" in shown.stdout
    assert "0-------7<3------------------------27" in shown.stdout


def test_show_as_json():
    facts = json.loads(run("route", "show", "3,5", "-n", "8", "--json").stdout)
    assert facts["length"] == 10
    assert facts["repeats"] == 2
    assert facts["route"] == "L0-L4 L3 RJ"
    assert facts["steps"][5] == "L3"
    assert not facts["is_standard"]


@pytest.mark.parametrize("form", ["text", "json", "ranges", "mergekit"])
def test_convert_there_and_back(form, tmp_path):
    path = tmp_path / "route"
    path.write_text(run("route", "convert", "L0-L7 L3-L9 RJ", "-n", "28", "--to", form).stdout)
    assert run("route", "convert", str(path), "-n", "28", "--to", "text").stdout == "L0-L7 L3 RJ\n"
    piped = run("route", "convert", "-", "-n", "28", "--to", "text", stdin=path.read_text())
    assert piped.stdout == "L0-L7 L3 RJ\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["route", "show", "L0 L5x RJ", "-n", "8"], "token 2 of 3, 'L5x'"),
        (["route", "show", "L0 L9 RJ", "-n", "8"], "step 2 applies layer 9"),
        (["route", "show", ".", "-n", "8"], ". is a folder"),
        (["route", "show", "L0 RJ"], "--layers"),
        (["route", "show", "missing.json", "-n", "8"], "there is no file missing.json"),
        (["route", "convert", "L0 L1 L2(+h-1) RJ", "-n", "8", "--to", "ranges"], "cannot express the add at step 3"),
        (["route", "convert", "L0 L1 L2(+h-1) RJ", "-n", "8", "--to", "mergekit"], "cannot express the add at step 3"),
        (["route", "convert", "L0 RJ", "-n", "8", "--to", "yaml"], "'yaml' is not one of"),
        (["rout"], "Did you mean 'route'"),
    ],
)
def test_mistakes_are_one_clear_message(arguments, message):
    failed = run(*arguments, status=2)
    assert message in " ".join(failed.stderr.split())
    assert "Traceback" not in failed.stderr
    assert not failed.stdout


def test_version():
    assert run("--version").stdout.startswith("macro ")


def test_help_needs_no_heavy_library():
    code = (
        "import sys; sys.argv = ['macro', '--help']\n"
        "from macro_routing.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    run(code=code)


def test_a_closed_pipe_is_no_traceback():
    import subprocess
    import sys

    command = f"{sys.executable} -m macro_routing.cli.main route show 'L0 RJ' -n 9999 | head -c 20"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
