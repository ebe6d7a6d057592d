"""Pages are rendered from records, and a page that differs is noticed."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def render_docs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    spec = importlib.util.spec_from_file_location("render_docs", ROOT / "tools" / "render_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "docs" / "data").mkdir(parents=True)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "DATA", tmp_path / "docs" / "data")
    record = {
        "command": "measure",
        "config": {},
        "commit": "abc",
        "hardware": "a machine",
        "seed": 1,
        "n": 1,
        "columns": {"case": "case", "ms": "time"},
        "results": [{"case": "one", "ms": 12.3456}],
    }
    (tmp_path / "docs" / "data" / "speed.json").write_text(json.dumps(record))
    (tmp_path / "README.md").write_text(
        "<!-- table speed.json --><!-- end -->\nabout <!-- value speed.json results.0.ms -->?<!-- end --> ms"
    )
    return module


def _exit(module, monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["render_docs.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        module.main()
    return ended.value.code


def test_render_then_check_then_tamper(render_docs, monkeypatch):
    page = render_docs.ROOT / "README.md"
    assert _exit(render_docs, monkeypatch, "--check")
    assert not _exit(render_docs, monkeypatch)
    assert "| one | 12.3 |" in page.read_text()
    assert "about <!-- value speed.json results.0.ms -->12.3<!-- end --> ms" in page.read_text()
    assert not _exit(render_docs, monkeypatch, "--check")
    page.write_text(page.read_text().replace("12.3", "11.3"))
    assert _exit(render_docs, monkeypatch, "--check")


@pytest.mark.parametrize("met", [True, False])
def test_a_goal_is_shown_where_it_is_missed(render_docs, monkeypatch, met):
    path = render_docs.DATA / "speed.json"
    content = json.loads(path.read_text())
    content["columns"]["target"] = "target"
    first = {"case": "one", "ms": 12.0, "target": 20}
    content["results"] = [first, {**first, "case": "two", "target": 10, "met": met}]
    path.write_text(json.dumps(content))
    assert not _exit(render_docs, monkeypatch)
    text = (render_docs.ROOT / "README.md").read_text()
    assert ("| case | time | target |" in text) == ("| two | 12 | 10 (missed) |" in text) == (not met)


@pytest.mark.parametrize(("shown", "rows"), [("case=one", ["one", "one", "two"]), ("folded", ["one", "two"])])
def test_a_long_table_is_folded(render_docs, monkeypatch, shown, rows):
    path, page = render_docs.DATA / "speed.json", render_docs.ROOT / "README.md"
    content = json.loads(path.read_text())
    content["results"].append({"case": "two", "ms": 2})
    path.write_text(json.dumps(content))
    page.write_text(f"<!-- table speed.json {shown} --><!-- end -->")
    assert not _exit(render_docs, monkeypatch)
    text = page.read_text()
    assert re.findall(r"^\| (one|two) \|", text, re.MULTILINE) == rows
    folded = text.partition("<details")[2].partition("</details>")[0]
    assert "| one |" in folded
    assert "| two |" in folded
    page.write_text("<!-- table speed.json unknown=one --><!-- end -->")
    assert "no column unknown" in _exit(render_docs, monkeypatch)


def test_a_record_that_cannot_be_repeated_is_refused(render_docs, monkeypatch):
    (render_docs.DATA / "speed.json").write_text(json.dumps({"results": []}))
    assert "lacks command" in _exit(render_docs, monkeypatch)


def test_a_record_whose_script_was_removed_names_the_commit_that_has_it(render_docs, monkeypatch):
    path = render_docs.DATA / "speed.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"script_in_commit": "fedc123"}))
    assert not _exit(render_docs, monkeypatch)
    page = (render_docs.ROOT / "README.md").read_text()
    assert "Made by a script that is no longer in the repository (commit fedc123 has it): `measure`" in page


def test_a_study_that_was_not_run_says_so(render_docs, monkeypatch):
    page = render_docs.ROOT / "docs" / "results" / "studies.md"
    page.parent.mkdir()
    page.write_text("<!-- study study_x.json --><!-- end -->")
    assert not _exit(render_docs, monkeypatch)
    assert "Not run yet" in page.read_text()
    record = json.loads((render_docs.DATA / "speed.json").read_text())
    config = {"title": "A study", "headline": "It gains.", "model": "m", "notes": ["one note"]}
    (render_docs.DATA / "study_x.json").write_text(json.dumps({**record, "config": config}))
    (render_docs.ROOT / "docs" / "pictures").mkdir(exist_ok=True)
    (render_docs.ROOT / "docs" / "pictures" / "study_x.svg").write_text("<svg/>")
    assert _exit(render_docs, monkeypatch, "--check")
    assert not _exit(render_docs, monkeypatch)
    text = page.read_text()
    assert "Not run yet" not in text
    for part in ("It gains.", "![A study](../pictures/study_x.svg)", "| one | 12.3 |", "one note"):
        assert part in text


def test_the_architecture_names_files_that_exist():
    names = re.findall(r"`([a-z_/]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    files = [path.as_posix() for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.py")]
    assert names
    assert not [name for name in names if not any(path.endswith(f"/{name}") for path in files)]


def test_preset_paper_has_the_papers_settings(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import code_tables

    rows = [line.split(" | ") for line in code_tables.presets().splitlines() if line.startswith("| `")]
    printed = {row[0].strip("| `"): (row[3], row[4].strip(" |")) for row in rows}
    assert len(printed) == len(code_tables.PAPER)
    worded = {"method", "final_set", "stream", "validation", "test"}  # depends on the model or the benchmark
    assert all(ours == paper for name, (ours, paper) in printed.items() if name not in worded)


def test_pictures_have_a_dark_theme_once(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import pictures

    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        svg = picture.read_text(encoding="utf-8")
        assert svg.count("prefers-color-scheme: dark") == 1
        assert pictures.add_dark_theme(svg) == svg
