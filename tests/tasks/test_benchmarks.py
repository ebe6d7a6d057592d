"""Hand-written rows in each dataset's own columns, and the real files where they are at hand."""

import gzip
import json

import pytest

from macro_routing.errors import TaskError
from macro_routing.tasks import BENCHMARKS, list_contamination_warnings, load_task, make_splits
from macro_routing.tasks.benchmarks import list_contaminating_tasks
from tests.datasets import FOLDER, needs_datasets

ROWS = {
    "gsm8k": ({"question": "Two and two?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}, "4"),
    "math500": ({"problem": "What is $1/2$?", "answer": "\\frac{1}{2}", "solution": "…"}, "\\frac{1}{2}"),
    "medqa": ({"question": "Which?", "options": {"A": "one", "B": "two"}, "answer_idx": "B", "answer": "two"}, "B"),
    "openbookqa": (
        {"question_stem": "The sun is", "choices": {"text": ["hot", "cold"], "label": ["A", "B"]}, "answerKey": "A"},
        "A",
    ),
    "sciq": (
        {"question": "What?", "correct_answer": "x", "distractor1": "p", "distractor2": "q", "distractor3": "r"},
        None,
    ),
    "mmlu_pro": ({"question": "Which?", "options": ["p", "q", "r"], "answer": "C"}, "C"),
    "svamp": ({"Body": "He has 3 cats", "Question": "How many legs?", "Answer": "12"}, "12"),
    "asdiv_a": ({"question": "Seven apples and two. How many?", "result": "9"}, "9"),
    "asdiv": ({"body": "Seven apples.", "question": "How many?", "answer": "7 (apples)"}, "7 (apples)"),
    "mawps": ({"question": "How many are 3 and 4 ?", "result": "7"}, "7"),
    "gsm8k_hard": ({"input": "How much?", "target": -9867630.0}, "-9867630"),
    "gsm8k_plus": ({"question": "How many?", "answer": "None", "seed_question": "How many then?"}, "None"),
    "multiarith": ({"question": " How many? ", "final_ans": "10"}, "10"),
    "object_counting": ({"input": "I have a cat. How many animals?", "target": "1"}, "1"),
    "bbh_arithmetic": ({"input": "(1 + 2) * 3 =", "target": "9"}, "9"),
    "arc_easy": ({"question": "Which?", "choices": {"text": ["p", "q"], "label": ["1", "2"]}, "answerKey": "2"}, "B"),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_row_becomes_an_example(name, tmp_path):
    row, answer = ROWS[name]
    folder = tmp_path / BENCHMARKS[name].folder
    folder.mkdir()
    (folder / "test.jsonl").write_text(json.dumps(row) + "\n")
    (example,) = load_task(name, data_dir=tmp_path).pools["test"]
    assert example.question.strip() == example.question
    if answer is None:
        assert example.choices[example.correct_choice] == "x"
    else:
        assert example.answer == answer
    with gzip.open(folder / "train.jsonl.gz", "wt") as file:
        file.write(json.dumps(row))
    assert len(load_task(name, data_dir=tmp_path).pools) == 2


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_row_without_its_columns_is_named_by_file_and_line(name, tmp_path):
    row, _ = ROWS[name]
    folder = tmp_path / BENCHMARKS[name].folder
    folder.mkdir()
    (folder / "test.jsonl").write_text(json.dumps(row) + "\n\n" + json.dumps({"other": 1}))
    with pytest.raises(TaskError, match=r"test\.jsonl, line 3: "):
        load_task(name, data_dir=tmp_path)


def test_the_place_of_sciqs_right_answer_tells_nothing(tmp_path):
    (tmp_path / "sciq").mkdir()
    rows = [{**ROWS["sciq"][0], "question": f"What is {number}?"} for number in range(400)]
    (tmp_path / "sciq" / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    places = [example.correct_choice for example in load_task("sciq", data_dir=tmp_path).pools["test"]]
    assert all(70 <= places.count(place) <= 130 for place in range(4))


def test_mmlu_pro_from_the_hub_has_the_same_examples_as_from_the_data_folder(tmp_path, monkeypatch):
    """The hub has 70 more rows, worked examples for prompts; they must not be all that the search trains on."""
    row, _ = ROWS["mmlu_pro"]
    hub = [{**row, "question": f"Which is {number}?"} for number in range(2400)]
    (tmp_path / "mmlu_pro").mkdir()
    (tmp_path / "mmlu_pro" / "test.jsonl").write_text("\n".join(map(json.dumps, hub)))
    rows = {"validation": [{**row, "question": f"Example {number}?"} for number in range(70)], "test": hub}
    numbered = {
        split: [(f"{split} {n}", one) for n, one in enumerate(split_rows)] for split, split_rows in rows.items()
    }
    splits = make_splits(load_task("mmlu_pro", data_dir=tmp_path), seed=1, test_seed=0)
    monkeypatch.delenv("MACRO_DATA_DIR", raising=False)
    monkeypatch.setattr("macro_routing.tasks.catalog._load_hub_rows", lambda _: numbered)
    from_hub = make_splits(load_task("mmlu_pro"), seed=1, test_seed=0)
    assert (len(from_hub.train), len(from_hub.validation), len(from_hub.test)) == (1000, 100, 800)
    assert from_hub.fingerprints == splits.fingerprints


def test_contamination_is_named():
    assert list_contamination_warnings(["gsm8k", "svamp"]) == []
    assert list_contaminating_tasks("gsm8k") == ["gsm8k_hard", "gsm8k_plus"]
    assert list_contaminating_tasks("svamp") == []
    assert "GSM8K-Hard" in list_contamination_warnings(["gsm8k_hard", "gsm8k"])[0]


def test_unknown_tasks_and_missing_files(tmp_path):
    with pytest.raises(TaskError, match="did you mean 'gsm8k'"):
        load_task("gsm8")
    with pytest.raises(TaskError, match=r"no \.jsonl files in .*gsm8k"):
        load_task("gsm8k", data_dir=tmp_path)


def test_the_hub_is_loaded_with_datasets(tmp_path, monkeypatch):
    """A local folder stands in for the hub; the loading code is the real one."""
    import dataclasses

    (tmp_path / "train.jsonl").write_text(
        "\n".join(json.dumps({**ROWS["multiarith"][0], "question": f"q{n}"}) for n in range(3))
    )
    monkeypatch.delenv("MACRO_DATA_DIR", raising=False)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    here = dataclasses.replace(BENCHMARKS["multiarith"], hub_id=str(tmp_path))
    monkeypatch.setitem(BENCHMARKS, "multiarith", here)
    assert len(load_task("multiarith").pools["train"]) == 3
    gone = dataclasses.replace(here, hub_id=str(tmp_path / "nowhere"))
    monkeypatch.setitem(BENCHMARKS, "multiarith", gone)
    with pytest.raises(TaskError, match=r"cannot be loaded from the hub .* --data-dir or MACRO_DATA_DIR"):
        load_task("multiarith")


# Resulting sizes with the files at hand: train, validation, test.
SIZES = {
    "gsm8k": (1000, 100, 1319),
    "math500": (364, 36, 100),
    "medqa": (1000, 100, 1273),
    "openbookqa": (1000, 100, 500),
    "sciq": (1000, 100, 1000),
    "mmlu_pro": (1000, 100, 800),
    "svamp": (636, 64, 300),
    "asdiv": (1000, 100, 318),
    "asdiv_a": (818, 82, 318),
    "mawps": (1000, 100, 238),
    "gsm8k_hard": (909, 91, 319),
    "gsm8k_plus": (1000, 100, 1000),
    "multiarith": (365, 37, 180),
    "object_counting": (136, 14, 100),
    "bbh_arithmetic": (136, 14, 100),
    "arc_easy": (1000, 100, 2376),
}


@needs_datasets
@pytest.mark.parametrize("name", BENCHMARKS)
def test_real_splits(name):
    task = load_task(name, data_dir=FOLDER)
    splits = make_splits(task, seed=1)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == SIZES[name]
    _assert_disjoint(splits)
    assert make_splits(task, seed=1).fingerprints == splits.fingerprints
    assert make_splits(task, seed=2).fingerprints["train"] != splits.fingerprints["train"]


def _assert_disjoint(splits):
    parts = [splits.train, splits.validation, splits.test]
    for place, one in enumerate(parts):
        for other in parts[place + 1 :]:
            assert not {example.normalized_question for example in one} & {
                example.normalized_question for example in other
            }
            assert not {example.group for example in one if example.group} & {example.group for example in other}
