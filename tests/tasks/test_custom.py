import json

import pytest

from macro_routing.errors import MacroError
from macro_routing.tasks import load_task

QUESTIONS = [{"q": f"What is {n} plus 1?", "a": n + 1} for n in range(20)]


def _write(folder, toml, rows=None, name="data.jsonl"):
    (folder / name).write_text("\n".join(json.dumps(row) for row in (QUESTIONS if rows is None else rows)))
    (folder / "mine.toml").write_text(toml)
    return str(folder / "mine.toml")


BASIC = 'file = "data.jsonl"\nquestion = "q"\nanswer = "a"\n'


def test_json_lines_with_named_columns(tmp_path):
    task = load_task(_write(tmp_path, BASIC + 'name = "sums"\ntest_size = 4'))
    assert task.name == "sums"
    assert task.test_size == 4
    assert task.pools["all"][3].answer == "4"


def test_the_number_behind_a_worked_solution_is_the_answer(tmp_path):
    rows = [{"q": "9 times 2?", "a": "9 * 2 = 18\n#### 18"}, {"q": "1 plus 1?", "a": "2"}]
    task = load_task(_write(tmp_path, BASIC, rows))
    assert [example.answer for example in task.pools["all"]] == ["18", "2"]
    assert task.grader("18.0", task.pools["all"][0].answer).correct
    own = load_task(_write(tmp_path, BASIC + 'grader = "text"', rows))
    assert own.pools["all"][0].answer.endswith("#### 18")
    with pytest.raises(MacroError, match="has no number behind '####'"):
        load_task(_write(tmp_path, BASIC, [*rows, {"q": "2 plus 2?", "a": "four ####"}]))


def test_csv_with_choices_in_columns_and_in_a_list(tmp_path):
    (tmp_path / "data.csv").write_text('q,one,two,right\n"Which, then?",yes,no,no\nAnd?,yes,no,A\n')
    toml = 'file = "data.csv"\nkind = "choice"\nquestion = "q"\nanswer = "right"\nchoices = ["one", "two"]\n'
    (tmp_path / "mine.toml").write_text(toml)
    assert [example.answer for example in load_task(str(tmp_path / "mine.toml")).pools["all"]] == ["B", "A"]
    (tmp_path / "list.csv").write_text("q,options,right\nWhich?,yes|no,no\n")
    (tmp_path / "mine.toml").write_text(toml.replace("data.csv", "list.csv").replace('["one", "two"]', '"options"'))
    assert load_task(str(tmp_path / "mine.toml")).pools["all"][0].choices == ("yes", "no")


def test_prompts_are_the_users(tmp_path):
    from macro_routing.tasks.prompts import build_messages

    toml = BASIC + '[prompts]\nsystem = "Be brief."\ndirect = "Q: {question}"\nfew_shot = [["1+1", "2"]]\n'
    task = load_task(_write(tmp_path, toml))
    asked = build_messages(task.prompts, "direct", "2+2", ())
    assert [(m["role"], m["content"]) for m in asked] == [
        ("system", "Be brief."),
        ("user", "Q: 1+1"),
        ("assistant", "2"),
        ("user", "Q: 2+2"),
    ]
    assert task.prompts.texts_digest != load_task(_write(tmp_path, BASIC)).prompts.texts_digest


def test_a_grader_of_ones_own(tmp_path):
    (tmp_path / "grade.py").write_text(
        "def close(text, answer, choices):\n    return abs(float(text) - float(answer)) <= 1\n"
    )
    task = load_task(_write(tmp_path, BASIC + 'grader = "grade.py:close"'))
    assert task.grader("5", "4").correct
    assert not task.grader("7", "4").correct
    with pytest.raises(MacroError, match="failed on 'five'"):
        task.grader("five", "4")
    version = task.grader.version
    (tmp_path / "grade.py").write_text("def close(text, answer, choices):\n    return 1\n")
    changed = load_task(str(tmp_path / "mine.toml"))
    assert changed.grader.version != version
    with pytest.raises(MacroError, match="must return True or False"):
        changed.grader("5", "4")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (BASIC + 'colour = "red"', "unknown key 'colour'"),
        (BASIC + 'kind = "essay"', "kind = 'essay' is not allowed"),
        (BASIC + 'kind = "choice"', "names its choices"),
        (BASIC + 'train = "data.jsonl"', "either one data file"),
        (BASIC + 'grader = "nope"', "grader = 'nope' is not allowed"),
        (BASIC + 'grader = "none.py:f"', "there is no file"),
        (
            BASIC.replace('"q"', '"question"'),
            r"data\.jsonl, line 1: there is no column 'question'; the columns are q, a",
        ),
        (BASIC + '[prompts]\ndirect = "no field"', "must contain {question}"),
        (BASIC + '[prompts]\ndirect = "{question} {0}"', "must contain {question}"),
        (BASIC + "[prompts]\nfew_shot = [[1]]", "pairs"),
        (BASIC.replace("data.jsonl", "gone.jsonl"), "there is no file"),
        (BASIC.replace("data.jsonl", "data.parquet"), "data files are"),
        ("file = [", "cannot be read"),
        ("file = 5", "file = 5 is not allowed"),
        (BASIC + "prompts = 3", "prompts a table"),
        (BASIC + "grader = 5", "grader = 5"),
        (BASIC + "[prompts]\nsystem = 3", "'system' must be a string"),
        (BASIC + '[prompts]\ndirect = "{question:d}"', "must contain {question}"),
        (BASIC + '[prompts]\ndirect = "{question!x}"', "must contain {question}"),
    ],
)
def test_mistakes_are_named(tmp_path, toml, message):
    with pytest.raises(MacroError, match=message):
        load_task(_write(tmp_path, toml))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"q": "x", "a": ', "line 2: not JSON"),
        ("[1]", "line 2: a row must be a JSON object"),
        ('{"q": "x", "a": null}', "line 2: the column 'a' holds None"),
        ('{"q": " ", "a": 1}', "line 2: the column 'q' holds"),
    ],
)
def test_a_bad_row_is_named_by_line(tmp_path, line, message):
    path = _write(tmp_path, BASIC)
    (tmp_path / "data.jsonl").write_text(json.dumps(QUESTIONS[0]) + "\n" + line)
    with pytest.raises(MacroError, match=message):
        load_task(path)


def test_a_grader_file_may_hold_anything_python(tmp_path):
    (tmp_path / "grade.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Rule:\n    limit: int = 1\n"
        "def close(text, answer, choices):\n    return abs(float(text) - float(answer)) <= Rule().limit\n"
    )
    assert load_task(_write(tmp_path, BASIC + 'grader = "grade.py:close"')).grader("5", "4").correct
    (tmp_path / "grade.py").write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(MacroError, match="cannot be imported"):
        load_task(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize("choices", [["yes", ""], ["yes", None], ["yes", "yes"]])
def test_choices_must_be_different_texts(tmp_path, choices):
    toml = 'file = "data.jsonl"\nkind = "choice"\nquestion = "q"\nanswer = "a"\nchoices = "c"\n'
    with pytest.raises(MacroError, match="line 1: the choices"):
        load_task(_write(tmp_path, toml, [{"q": "x", "a": "A", "c": choices}]))


def test_a_damaged_archive_is_named(tmp_path):
    import gzip

    whole = gzip.compress(b'{"q": "x", "a": 1}\n' * 100)
    (tmp_path / "data.jsonl.gz").write_bytes(whole[:20] + b"damage" + whole[26:])
    (tmp_path / "mine.toml").write_text(BASIC.replace("data.jsonl", "data.jsonl.gz"))
    with pytest.raises(MacroError, match="cannot be read"):
        load_task(str(tmp_path / "mine.toml"))


def _load_table(folder, name, contents):
    (folder / name).write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    return load_task(str(folder / name), question="q", answer="a")


def test_tables_with_tabs_are_read(tmp_path):
    task = _load_table(tmp_path, "mine.tsv", "q\ta\none, two\t3\nthree\t4\n")
    assert [example.question for example in task.pools["all"]] == ["one, two", "three"]


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("x.csv", "q;a\n1;2\n", "separated by semicolons, not commas: save it with commas"),
        ("x.csv", "q\ta\n1\t2\n", "separated by tabs, not commas: name it .tsv"),
        ("x.tsv", "q,a\n1,2\n", "separated by commas, not tabs: name it .csv"),
        ("x.csv", "q,a\ncafé,2\n".encode("latin-1"), r"not UTF-8 \(line 2 has the byte 0xe9\); save it as UTF-8"),
        ("x.csv", "q,a\ncafé,2\n".encode("utf-16"), r"not UTF-8 \(it is UTF-16\); save it as UTF-8"),
    ],
)
def test_tables_of_other_programs_are_explained(tmp_path, name, contents, message):
    with pytest.raises(MacroError, match=message):
        _load_table(tmp_path, name, contents)


def test_rows_that_repeat_another_are_no_further_evidence(tmp_path):
    task = _load_table(tmp_path, "x.csv", "q,a\nHow many?,2\nhow many,2\nHow many?,3\nWhy?,1\n")
    assert [(example.question, example.answer) for example in task.pools["all"]] == [
        ("How many?", "2"),
        ("How many?", "3"),
        ("Why?", "1"),
    ]
    assert task.repeated_rows == 1


def test_bad_csv_rows(tmp_path):
    (tmp_path / "data.csv").write_text("q,a\n1,2\n3\n")
    (tmp_path / "mine.toml").write_text(BASIC.replace("jsonl", "csv"))
    with pytest.raises(MacroError, match="line 3: the row has fewer fields"):
        load_task(str(tmp_path / "mine.toml"))


def test_an_answer_that_always_stands_first_is_mixed_and_stays_right(tmp_path):
    rows = "\n".join(f"question {n},right{n},wrong{n},other{n}" for n in range(40))
    (tmp_path / "mine.csv").write_text(f"question,answer,b,c\n{rows}\n")
    task = load_task(str(tmp_path / "mine.csv"), choices="answer,b,c")
    examples = task.pools["all"]
    assert {example.answer for example in examples} == {"A", "B", "C"}
    assert all(example.choices[example.correct_choice].startswith("right") for example in examples)
    assert load_task(str(tmp_path / "mine.csv"), choices="answer,b,c").pools == task.pools


def test_a_column_called_choices_is_used(tmp_path):
    line = '{"question": "q%d", "answer": "B", "choices": ["x", "y"]}'
    (tmp_path / "mine.jsonl").write_text("\n".join(line % number for number in range(3)))
    task = load_task(str(tmp_path / "mine.jsonl"))
    assert task.kind == "choice"
    assert task.pools["all"][0].choices == ("x", "y")
