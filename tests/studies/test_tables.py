"""Tables as files: whatever a task or model is called, no table breaks."""

import csv
import io

import pytest

from macro_routing.studies.paired_comparisons import describe_comparison_count
from macro_routing.studies.tables import (
    Column,
    Table,
    escape_latex,
    escape_markdown,
    make_text_column,
    remove_markdown_marks,
)

HOSTILE = r"a|b & 50% of $x_1 {#} ~^\ <i>*"


def small_table():
    rows = [
        {"name": HOSTILE, "value": 0.5, "by_task": {"one": 1, "two": [1, 2]}, "rank": 1},
        {"name": "plain", "value": None, "rank": 2},
    ]
    columns = [
        make_text_column("name", "name"),
        Column("value, %", lambda row: "" if row["value"] is None else "50.0", rank=lambda row: row["rank"]),
        make_text_column("route", "route", is_code=True),
    ]
    return Table("A title", columns, rows, ("a note",))


def test_markdown_has_as_many_cells_as_columns():
    lines = small_table().to_markdown().splitlines()
    body = [line for line in lines if line.startswith("|")]
    assert len(body) == 4
    for line in body:
        assert line.replace(r"\|", "").count("|") == 4
    assert "**50.0** ①" in lines[4]
    assert lines[0] == "# A title"
    assert lines[-1] == "a note"


def test_latex_escapes_everything_that_it_would_obey():
    text = small_table().to_latex()
    row = next(line for line in text.splitlines() if "50" in line and r"\textbf" in line)
    assert row.count(" & ") == 2  # the cell's own sign is escaped
    assert r"\&" in row
    assert escape_latex(HOSTILE).count("\\") >= 9
    for sign in "%$#_{}":
        assert f"\\{sign}" in escape_latex(sign)
    assert escape_latex("−1 ± 2 → β") == r"$-$1 $\pm$ 2 $\to$ $\beta$"


def test_latex_gets_only_signs_that_it_can_set():
    assert escape_latex("≤ λ Ω é") == r"$\leq$ $\lambda$ $\Omega$ é"
    assert escape_latex("中 ⌘\x07") == "{[}U+4E2D] {[}U+2318]{[}U+0007]"
    assert escape_latex("--tasks ---") == "-{}-tasks -{}-{}-"
    assert escape_latex("–") == "--"
    rows = [{"name": "[a]"}, {"name": "*"}]
    text = Table("t", [make_text_column("name", "name")], rows).to_latex()
    assert "{[}a]" in text
    assert "{*}" in text


def test_notes_have_no_marks_in_latex():
    note = "The route `L0 RJ` has *shared questions*: 2 * 3 * 4."
    assert remove_markdown_marks(note) == "The route L0 RJ has shared questions: 2 * 3 * 4."
    text = Table("t", [make_text_column("name", "name")], [], (note,)).to_latex()
    assert "The route L0 RJ has shared questions" in text


def test_csv_keeps_plain_values():
    rows = list(csv.DictReader(io.StringIO(small_table().to_csv())))
    assert rows[0]["name"] == HOSTILE
    assert rows[0]["by_task.one"] == "1"
    assert rows[0]["by_task.two"] == "1 2"
    assert rows[1]["value"] == ""


def test_markdown_text_is_no_emphasis():
    assert escape_markdown("a_b*c\nd") == r"a\_b\*c d"


@pytest.mark.parametrize("sign", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_name_ends_a_line(sign):
    name = f"a{sign}b"
    columns = [make_text_column(name, "name"), make_text_column("route", "name", is_code=True)]
    table = Table(f"t {name}", columns, [{"name": name, "by_task": {name: 1}}])
    assert escape_markdown(name) == "a b"
    assert table.to_markdown().splitlines() == ["# t a b", "", "| a b | route |", "| --- | --- |", "| a b | `a b` |"]
    assert table.to_csv().splitlines() == ["name,by_task.a b", "a b,1"]
    plain = Table("t a b", [make_text_column("a b", "name"), columns[1]], [{"name": "a b"}])
    assert [" ".join(line.split()) for line in table.to_latex().splitlines()] == plain.to_latex().splitlines()


def test_the_number_of_comparisons_is_told():
    assert "12 comparisons" in describe_comparison_count(12)
    assert "One comparison" in describe_comparison_count(1)
