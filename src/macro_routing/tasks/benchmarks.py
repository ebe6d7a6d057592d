"""The paper's benchmarks and a few more: where their data comes from, and how their columns become examples."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from macro_routing.errors import TaskError
from macro_routing.tasks.task import CHOICE, LETTERS, MATH, NUMBER, Example

Columns = Mapping[str, Any]
Reader = Callable[[Columns, str], Example]


@dataclass(frozen=True)
class Benchmark:
    """A published dataset."""

    name: str
    title: str
    """The name used in the paper."""
    kind: str
    folder: str
    """Its folder under a data folder; the hub's column names are expected there."""
    hub_id: str
    hub_config: str | None
    read: Reader
    test_size: int | None
    """Test items the paper uses; None where it does not say."""
    licence: str


def _text(row: Columns, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise TaskError(f"the column {column!r} is missing or empty")
    return value.strip()


def _number(row: Columns, column: str) -> str:
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not str(value).strip():
        raise TaskError(f"the column {column!r} is missing or empty")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _gsm8k(row: Columns, key: str) -> Example:
    _, found, answer = _text(row, "answer").rpartition("####")
    if not found:
        raise TaskError("the answer has no '####' before its number")
    return Example(key, _text(row, "question"), answer.strip())


def _gsm_hard(row: Columns, key: str) -> Example:
    return Example(key, _text(row, "input"), _number(row, "target"))


def _gsm_plus(row: Columns, key: str) -> Example:
    return Example(key, _text(row, "question"), _number(row, "answer"), group=_text(row, "seed_question"))


def _math500(row: Columns, key: str) -> Example:
    return Example(key, _text(row, "problem"), _text(row, "answer"))


def _svamp(row: Columns, key: str) -> Example:
    return Example(key, f"{_text(row, 'Body').rstrip('.')}. {_text(row, 'Question')}", _number(row, "Answer"))


def _asdiv(row: Columns, key: str) -> Example:
    return Example(key, f"{_text(row, 'body')} {_text(row, 'question')}", _text(row, "answer"))


def _mawps(row: Columns, key: str) -> Example:
    return Example(key, _untokenised(_text(row, "question")), _number(row, "result"))


def _untokenised(text: str) -> str:
    """The release has spaces before punctuation, which no model was trained on."""
    return re.sub(r"\s+([.,?!;:%])", r"\1", text)


def _multiarith(row: Columns, key: str) -> Example:
    return Example(key, _text(row, "question"), _number(row, "final_ans"))


def _bbh(row: Columns, key: str) -> Example:
    return Example(key, _text(row, "input"), _number(row, "target"))


def _labelled_choices(row: Columns, key: str, question: str) -> Example:
    """``choices`` with parallel lists ``text`` and ``label``, and an ``answerKey`` among the labels."""
    choices = row.get("choices")
    if (
        not isinstance(choices, Mapping)
        or not choices.get("text")
        or len(choices["text"]) != len(choices.get("label", ()))
    ):
        raise TaskError("the column 'choices' must hold equally long lists 'text' and 'label'")
    labels = [str(label) for label in choices["label"]]
    if row.get("answerKey") not in labels:
        raise TaskError(f"answerKey {row.get('answerKey')!r} is not among the labels {labels}")
    right = LETTERS[labels.index(str(row["answerKey"]))]
    return Example(key, _text(row, question), right, tuple(str(choice) for choice in choices["text"]))


def _openbookqa(row: Columns, key: str) -> Example:
    return _labelled_choices(row, key, "question_stem")


def _arc(row: Columns, key: str) -> Example:
    return _labelled_choices(row, key, "question")


def _sciq(row: Columns, key: str) -> Example:
    """The right answer has a column of its own; choices are ordered by a digest, so that its place tells nothing."""
    question, right = _text(row, "question"), _text(row, "correct_answer")
    choices = [right, *(_text(row, f"distractor{number}") for number in (1, 2, 3))]
    order = sorted(choices, key=lambda choice: hashlib.sha256(f"{question}\n{choice}".encode()).digest())
    return Example(key, question, LETTERS[order.index(right)], tuple(order))


def _medqa(row: Columns, key: str) -> Example:
    options, right = row.get("options"), row.get("answer_idx")
    if not isinstance(options, Mapping) or right not in options:
        raise TaskError(f"answer_idx {right!r} is not among the options")
    labels = sorted(options)
    return Example(
        key, _text(row, "question"), LETTERS[labels.index(right)], tuple(str(options[name]) for name in labels)
    )


def _mmlu_pro(row: Columns, key: str) -> Example:
    options, right = row.get("options"), row.get("answer")
    if not isinstance(options, list) or not isinstance(right, str) or right not in LETTERS[: len(options)]:
        raise TaskError(f"answer {right!r} is not the letter of an option")
    return Example(key, _text(row, "question"), right, tuple(str(option) for option in options))


_ROWS: tuple[tuple[str, str, str, str, str, str | None, Reader, int | None, str], ...] = (
    # name, the paper's name, kind, folder, hub id, hub config, reader, test items, licence
    ("gsm8k", "GSM8K", NUMBER, "gsm8k", "openai/gsm8k", "main", _gsm8k, 1319, "MIT"),
    ("math500", "MATH500", MATH, "math500", "HuggingFaceH4/MATH-500", None, _math500, 100, "MIT"),
    ("medqa", "MedQA", CHOICE, "medqa", "GBaker/MedQA-USMLE-4-options", None, _medqa, 1273, "MIT"),
    ("openbookqa", "OpenBookQA", CHOICE, "openbookqa", "allenai/openbookqa", "main", _openbookqa, 500, "Apache-2.0"),
    ("sciq", "SciQ", CHOICE, "sciq", "allenai/sciq", None, _sciq, 1000, "CC BY-NC 3.0"),
    ("mmlu_pro", "MMLU-Pro", CHOICE, "mmlu_pro", "TIGER-Lab/MMLU-Pro", None, _mmlu_pro, 800, "Apache-2.0"),
    ("svamp", "SVAMP", NUMBER, "svamp", "ChilleD/SVAMP", None, _svamp, 300, "MIT"),
    ("asdiv", "ASDiv", NUMBER, "asdiv", "EleutherAI/asdiv", None, _asdiv, 318, "CC BY-NC 4.0"),
    ("mawps", "MAWPS", NUMBER, "mawps", "MU-NLPC/Calc-mawps", None, _mawps, 520, "ODC-By 1.0"),
    ("gsm8k_hard", "GSM8K-Hard", NUMBER, "gsm_hard", "reasoning-machines/gsm-hard", None, _gsm_hard, 319, "Apache-2.0"),
    ("gsm8k_plus", "GSM8K-Plus", NUMBER, "gsm_plus", "qintongli/GSM-Plus", None, _gsm_plus, 1000, "not stated"),
    ("multiarith", "MS-Arith", NUMBER, "multiarith", "ChilleD/MultiArith", None, _multiarith, 180, "not stated"),
    (
        "object_counting",
        "Obj-Count",
        NUMBER,
        "bbh_object_counting",
        "lukaemon/bbh",
        "object_counting",
        _bbh,
        100,
        "MIT",
    ),
    (
        *("bbh_arithmetic", "BBH multistep arithmetic", NUMBER, "bbh_multistep_arithmetic_two"),
        *("lukaemon/bbh", "multistep_arithmetic_two", _bbh, None, "MIT"),
    ),
    ("arc_easy", "ARC-Easy", CHOICE, "arc_easy", "allenai/ai2_arc", "ARC-Easy", _arc, None, "CC BY-SA 4.0"),
)
BENCHMARKS = {row[0]: Benchmark(*row) for row in _ROWS}

CONTAMINATED = {
    ("gsm8k", "gsm8k_hard"): "GSM8K-Hard is made from GSM8K's test questions",
    ("gsm8k", "gsm8k_plus"): "GSM8K-Plus is made from GSM8K's test questions",
    ("gsm8k_hard", "gsm8k_plus"): "both are made from GSM8K's test questions",
    ("mawps", "multiarith"): "MAWPS contains most of MultiArith",
    ("asdiv", "mawps"): "some questions are in both",
}
"""Pairs of tasks that share questions: a route searched on one must not be judged on the other as if it were new."""


def contaminators(name: str) -> list[str]:
    """Tasks that share questions with this one."""
    return [other for pair in CONTAMINATED if name in pair for other in pair if other != name]


def contamination(names: list[str]) -> list[str]:
    """Warnings, by name, for tasks that are used together but share questions."""
    return [
        f"{first} and {second} contaminate each other: {reason}"
        for (first, second), reason in CONTAMINATED.items()
        if first in names and second in names
    ]
