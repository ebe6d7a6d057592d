"""The paper's benchmarks and a few more: sources, licences, and how rows become examples."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from macro_routing.errors import TaskError
from macro_routing.tasks.task import CHOICE, LETTERS, MATH, NUMBER, Example

RowColumns = Mapping[str, Any]
RowReader = Callable[[RowColumns, str], Example]


@dataclass(frozen=True)
class Benchmark:
    """A published dataset."""

    name: str
    title: str
    """The name used in the paper."""
    kind: str
    folder: str
    """Its folder inside a data folder; files there have the hub's column names."""
    hub_id: str
    hub_config: str | None
    read: RowReader
    test_size: int | None
    """Number of test examples in the paper; None if it does not say."""
    licence: str
    unused_splits: tuple[str, ...] = ()
    """The hub's splits that are no evaluation items, such as worked examples for prompts."""


def _read_column_as_text(row: RowColumns, column: str) -> str:
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not str(value).strip():
        raise TaskError(f"the column {column!r} is missing or empty")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _read_example_from_columns(
    row: RowColumns, key: str, *, questions: Sequence[str], answer: str, group: str = ""
) -> Example:
    """Read a row with columns for the parts of the question, the answer and, if named, the group."""
    question = " ".join(_read_column_as_text(row, column) for column in questions)
    return Example(
        key, question, _read_column_as_text(row, answer), group=_read_column_as_text(row, group) if group else ""
    )


def _parse_gsm8k_row(row: RowColumns, key: str) -> Example:
    _, separator, answer = _read_column_as_text(row, "answer").rpartition("####")
    if not separator:
        raise TaskError("the answer has no '####' before its number")
    return Example(key, _read_column_as_text(row, "question"), answer.strip())


def _parse_svamp_row(row: RowColumns, key: str) -> Example:
    return Example(
        key,
        f"{_read_column_as_text(row, 'Body').rstrip('.')}. {_read_column_as_text(row, 'Question')}",
        _read_column_as_text(row, "Answer"),
    )


def _parse_mawps_row(row: RowColumns, key: str) -> Example:
    # The release has spaces before punctuation.
    question = re.sub(r"\s+([.,?!;:%])", r"\1", _read_column_as_text(row, "question"))
    return Example(key, question, _read_column_as_text(row, "result"))


def _make_choice_example(row: RowColumns, key: str, question: str, answer: str, choices: Mapping[str, Any]) -> Example:
    """Make an example of a row with choices by label and a column ``answer`` that names the correct label."""
    labels = list(choices)
    if row.get(answer) not in labels:
        raise TaskError(f"{answer} {row.get(answer)!r} is not among the labels of the choices, {labels}")
    correct = LETTERS[labels.index(row[answer])]
    return Example(key, _read_column_as_text(row, question), correct, tuple(map(str, choices.values())))


def _read_labelled_choices(row: RowColumns, key: str, question: str) -> Example:
    """Read ``choices`` with parallel lists ``text`` and ``label``, and an ``answerKey`` among the labels."""
    choices = row.get("choices")
    if (
        not isinstance(choices, Mapping)
        or not choices.get("text")
        or len(choices["text"]) != len(choices.get("label", ()))
    ):
        raise TaskError("the column 'choices' must hold equally long lists 'text' and 'label'")
    by_label = dict(zip(map(str, choices["label"]), choices["text"], strict=True))
    return _make_choice_example(row, key, question, "answerKey", by_label)


def _parse_sciq_row(row: RowColumns, key: str) -> Example:
    """Read the correct answer and distractors; a digest orders the choices, so that position gives no hint."""
    question, correct = _read_column_as_text(row, "question"), _read_column_as_text(row, "correct_answer")
    choices = [correct, *(_read_column_as_text(row, f"distractor{number}") for number in (1, 2, 3))]
    order = sorted(choices, key=lambda choice: hashlib.sha256(f"{question}\n{choice}".encode()).digest())
    return Example(key, question, LETTERS[order.index(correct)], tuple(order))


def _parse_medqa_row(row: RowColumns, key: str) -> Example:
    options = row.get("options")
    by_label = dict(sorted(options.items())) if isinstance(options, Mapping) else {}
    return _make_choice_example(row, key, "question", "answer_idx", by_label)


def _read_mmlu_pro(row: RowColumns, key: str) -> Example:
    options = row.get("options")
    by_label = dict(zip(LETTERS, options, strict=False)) if isinstance(options, list) else {}
    return _make_choice_example(row, key, "question", "answer", by_label)


_read_gsm_hard = _read_bbh = partial(_read_example_from_columns, questions=["input"], answer="target")
_read_gsm_plus = partial(_read_example_from_columns, questions=["question"], answer="answer", group="seed_question")
_read_math500 = partial(_read_example_from_columns, questions=["problem"], answer="answer")
_read_asdiv = partial(_read_example_from_columns, questions=["body", "question"], answer="answer")
_read_asdiv_a = partial(_read_example_from_columns, questions=["question"], answer="result")
_read_multiarith = partial(_read_example_from_columns, questions=["question"], answer="final_ans")
_read_openbookqa = partial(_read_labelled_choices, question="question_stem")
_read_arc = partial(_read_labelled_choices, question="question")
_ROWS: tuple[tuple[str, str, str, str, str, str | None, RowReader, int | None, str], ...] = (
    # name, the paper's name, kind, folder, hub id, hub config, reader, test items, licence
    ("gsm8k", "GSM8K", NUMBER, "gsm8k", "openai/gsm8k", "main", _parse_gsm8k_row, 1319, "MIT"),
    ("math500", "MATH500", MATH, "math500", "HuggingFaceH4/MATH-500", None, _read_math500, 100, "MIT"),
    ("medqa", "MedQA", CHOICE, "medqa", "GBaker/MedQA-USMLE-4-options", None, _parse_medqa_row, 1273, "MIT"),
    (
        "openbookqa",
        "OpenBookQA",
        CHOICE,
        "openbookqa",
        "allenai/openbookqa",
        "main",
        _read_openbookqa,
        500,
        "Apache-2.0",
    ),
    ("sciq", "SciQ", CHOICE, "sciq", "allenai/sciq", None, _parse_sciq_row, 1000, "CC BY-NC 3.0"),
    ("mmlu_pro", "MMLU-Pro", CHOICE, "mmlu_pro", "TIGER-Lab/MMLU-Pro", None, _read_mmlu_pro, 800, "Apache-2.0"),
    ("svamp", "SVAMP", NUMBER, "svamp", "ChilleD/SVAMP", None, _parse_svamp_row, 300, "MIT"),
    # The paper's 318 items are those of the arithmetic subset, 1,218 less 900.
    ("asdiv_a", "ASDiv", NUMBER, "asdiv_a", "MU-NLPC/Calc-asdiv_a", None, _read_asdiv_a, 318, "CC BY-NC 4.0"),
    ("asdiv", "ASDiv, whole", NUMBER, "asdiv", "EleutherAI/asdiv", None, _read_asdiv, 318, "CC BY-NC 4.0"),
    ("mawps", "MAWPS", NUMBER, "mawps", "MU-NLPC/Calc-mawps", None, _parse_mawps_row, 520, "ODC-By 1.0"),
    (
        "gsm8k_hard",
        "GSM8K-Hard",
        NUMBER,
        "gsm_hard",
        "reasoning-machines/gsm-hard",
        None,
        _read_gsm_hard,
        319,
        "Apache-2.0",
    ),
    ("gsm8k_plus", "GSM8K-Plus", NUMBER, "gsm_plus", "qintongli/GSM-Plus", None, _read_gsm_plus, 1000, "not stated"),
    ("multiarith", "MS-Arith", NUMBER, "multiarith", "ChilleD/MultiArith", None, _read_multiarith, 180, "not stated"),
    (
        "object_counting",
        "Obj-Count",
        NUMBER,
        "bbh_object_counting",
        "lukaemon/bbh",
        "object_counting",
        _read_bbh,
        100,
        "MIT",
    ),
    (
        *("bbh_arithmetic", "BBH multistep arithmetic", NUMBER, "bbh_multistep_arithmetic_two"),
        *("lukaemon/bbh", "multistep_arithmetic_two", _read_bbh, None, "MIT"),
    ),
    ("arc_easy", "ARC-Easy", CHOICE, "arc_easy", "allenai/ai2_arc", "ARC-Easy", _read_arc, None, "CC BY-SA 4.0"),
)
_UNUSED_SPLITS = {"mmlu_pro": ("validation",)}
"""MMLU-Pro's validation split is 70 worked examples for prompts; training on it would leave 64 examples."""
BENCHMARKS = {row[0]: Benchmark(*row, _UNUSED_SPLITS.get(row[0], ())) for row in _ROWS}

CONTAMINATED_PAIRS = {
    ("gsm8k", "gsm8k_hard"): "GSM8K-Hard is made from GSM8K's test questions",
    ("gsm8k", "gsm8k_plus"): "GSM8K-Plus is made from GSM8K's test questions",
    ("gsm8k_hard", "gsm8k_plus"): "both are made from GSM8K's test questions",
    ("mawps", "multiarith"): "MAWPS contains most of MultiArith",
    ("asdiv", "mawps"): "some questions are in both",
    ("asdiv_a", "mawps"): "some questions are in both",
    ("asdiv", "asdiv_a"): "ASDiv-A is the arithmetic part of ASDiv",
}
"""Pairs of tasks that share questions: a route found on one must not be tested on the other as unseen."""
_REWRITING_TASKS = {"gsm8k_hard", "gsm8k_plus"}
"""Their questions are rewritten ones of another task: a comparison of the questions does not find the pairs."""


def list_contaminating_tasks(name: str) -> list[str]:
    """List the tasks that share questions with this one."""
    return [other for pair in CONTAMINATED_PAIRS if name in pair for other in pair if other != name]


def list_tasks_with_rewritten_questions(name: str) -> list[str]:
    """List the tasks that share questions with this one in other words or with other numbers."""
    return [other for other in list_contaminating_tasks(name) if _REWRITING_TASKS & {name, other}]


def list_contamination_warnings(names: list[str]) -> list[str]:
    """List warnings for tasks that are used together but share questions."""
    return [
        f"{first} and {second} contaminate each other: {reason}"
        for (first, second), reason in CONTAMINATED_PAIRS.items()
        if first in names and second in names
    ]
