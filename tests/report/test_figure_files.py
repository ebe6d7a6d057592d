"""Figures as files: the same drawings, sound by themselves, and a clear word where PNG cannot be made."""

import struct
import sys
from xml.etree import ElementTree as ET

import pytest

from macro_routing.errors import RunError
from macro_routing.report import figure_files as module
from macro_routing.report import write_figures
from tests.report.folders import begin, complete


def parsed(path):
    return ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 our own file


def write(place, output):
    told = []
    return write_figures([place.path], output, told.append), told


def test_a_run_has_its_figures_as_svg_png_and_pdf(tmp_path):
    written, told = write(complete(tmp_path / "run"), tmp_path / "a" / "figures")
    assert not told
    names = {path.name for path in written}
    assert names == {f"{name}.{kind}" for name in ("variants", "route", "rounds") for kind in ("svg", "png", "pdf")}
    for path in written:
        if path.suffix == ".svg":
            root = parsed(path)
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert "tiny on toys" in root[0].text
            assert "var(" not in path.read_text(encoding="utf-8")  # colours are given, not looked up
        elif path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF-")
            assert b"/Font" in path.read_bytes()  # text stays text
        else:
            data = path.read_bytes()
            width, height = struct.unpack(">II", data[16:24])
            assert data.startswith(b"\x89PNG")
            assert width > 1500
            assert height > 200


def test_an_unfinished_run_has_the_figures_that_it_came_to(tmp_path):
    written, _ = write(begin(tmp_path / "run", 2), tmp_path / "figures")
    assert {path.stem for path in written} == {"rounds"}
    assert write(begin(tmp_path / "none", 0), tmp_path / "figures")[0] == []


def test_foreign_text_does_not_break_a_figure(tmp_path):
    place = complete(tmp_path / "run")
    told = place.read_json("run.json")
    told["model"]["name"] = '</title><script>"&\x00'
    place.write_json("run.json", told)
    written, _ = write(place, tmp_path / "figures")
    assert len(written) == 9
    for path in written:
        if path.suffix == ".svg":
            assert parsed(path) is not None


def test_without_the_extra_there_is_svg_and_a_word(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    written, told = write(complete(tmp_path / "run"), tmp_path / "figures")
    assert {path.suffix for path in written} == {".svg"}
    assert told == [module.NO_PLOT_EXTRA]
    assert "pip install '.[plot]'" in told[0]


def test_without_fonts_there_is_no_file_without_text(tmp_path, monkeypatch):
    monkeypatch.setattr("vl_convert.svg_to_png", lambda *_, **__: b"blank")
    written, told = write(complete(tmp_path / "run"), tmp_path / "figures")
    assert {path.suffix for path in written} == {".svg"}
    assert told == [module.NO_FONTS]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        write(complete(tmp_path / "run"), tmp_path / "file" / "figures")
