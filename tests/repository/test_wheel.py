"""The built wheel works outside the checkout, in an environment without torch."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment that holds the wheel and what it depends on, nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    # What is not imported need not be compiled, and this environment's pip installs into the other.
    install = ["install", "--quiet", "--no-compile", "--disable-pip-version-check", "-c", ROOT / "constraints.txt"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, *install, wheel], check=True)
    return python


def _run(python, *arguments):
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=False, cwd=python.parent)


def test_search_needs_no_torch(installed):
    assert _run(installed, "-c", "import torch").returncode != 0
    done = _run(installed.parent / "macro", "planted", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "selected" in done.stdout


def test_commands_for_models_say_what_to_install(installed):
    assert _run(installed.parent / "macro", "models").returncode == 0
    described = _run(installed.parent / "macro", "doctor", "--environment")
    assert described.returncode == 0, described.stderr
    assert "pip install '.[models]'" in described.stdout
    refused = _run(installed.parent / "macro", "doctor")
    assert refused.returncode == 2
    assert "pip install '.[models]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_studies_that_only_read_need_no_torch(installed, tmp_path):
    macro, published = installed.parent / "macro", ROOT / "tests" / "data" / "published_results.json"
    done = _run(macro, "study", "significance", published, "--baseline", "Baseline", "--out", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert "+12.68" in (tmp_path / "s" / "table.md").read_text()
    assert (tmp_path / "s" / "figure.svg").is_file()
    for words in (["explain", "L0 RJ"], ["study", "ablation"], ["study", "cost", "L0 RJ"]):
        refused = _run(macro, *words)
        assert refused.returncode == 2
        assert "pip install '.[models]'" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_every_room_that_promises_it_imports_without_torch(installed):
    code = (
        "import importlib, pkgutil, macro_routing\n"
        "for room in ('routes', 'search', 'tasks', 'report', 'cli'):\n"
        "    package = importlib.import_module(f'macro_routing.{room}')\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(macro_routing.__version__)"
    )
    done = _run(installed, "-W", "error", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0.1.0"


def test_the_papers_configuration_is_installed(installed):
    code = "from macro_routing.cli.paper_study import find_own_config; print(find_own_config().read_text())"
    done = _run(installed, "-c", code)
    assert done.stdout.strip() == (ROOT / "examples" / "paper.toml").read_text().strip()


def test_the_wheel_carries_types_and_licence(installed):
    code = (
        "from importlib.metadata import files\n"
        "names = [str(file) for file in files('macro-routing')]\n"
        "assert any(name.endswith('py.typed') for name in names), names\n"
        "assert any('LICENSE' in name for name in names), names\n"
        "assert not any(name.startswith('tests') for name in names), names"
    )
    done = _run(installed, "-c", code)
    assert done.returncode == 0, done.stderr
