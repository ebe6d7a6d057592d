"""Every command and every Python example of the README and the docs runs, and prints what they show."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.runner import run, run_script

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [README, *(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))]


def blocks(language):
    return [block for page in PAGES for block in re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)]


def commands(block):
    """(command, shown output) of a console block."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.engines  # real searches and models: minutes together
@pytest.mark.parametrize("block", blocks("console"))
def test_console(block, tmp_path):
    """In order and in one folder: later commands use what earlier ones made. The first has a Python of its own."""
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for index, (command, output) in enumerate(commands(block)):
        program, *arguments = shlex.split(command)
        assert program == "macro"
        done = run(*arguments, cwd=tmp_path, fresh=index == 0)
        if output.strip():
            assert done.stdout.strip() == output.strip()


@pytest.mark.parametrize("code", blocks("python"))
def test_python(code, tmp_path):
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    run_script(tmp_path / "example.py", cwd=ROOT)


def test_data_that_is_shown_is_the_example():
    examples = [path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.csv")]
    assert blocks("csv")
    assert all(any(data.startswith(block) for data in examples) for block in blocks("csv"))


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    named = re.findall(r"^make ([\w-]+)", "\n".join(blocks("bash")), re.MULTILINE)
    assert named[:2] == ["demo", "test"]
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_notebook(tmp_path):
    """All cells in order, as one program."""
    notebook = json.loads((ROOT / "docs" / "tutorials" / "from_python.ipynb").read_text(encoding="utf-8"))
    test_python(
        "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"), tmp_path
    )


def test_no_page_has_the_marks_of_a_conflict():
    assert not [page[:80] for page in PAGES if re.search(r"^(<{7}|>{7})( |$)", page, re.MULTILINE)]
