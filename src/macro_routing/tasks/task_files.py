"""Task files: the user's own task with its columns, grader and prompts.

Errors name file, line and reason.
"""

import dataclasses
import hashlib
import importlib.util
import json
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from macro_routing.errors import TaskError, shorten_value
from macro_routing.settings import build_settings, check_choice, check_integer
from macro_routing.tasks.data_files import read_rows, rows_to_examples
from macro_routing.tasks.grading import GRADERS, GradedAnswer, Grader
from macro_routing.tasks.prompts import DEFAULT_TEXTS, PromptTemplates
from macro_routing.tasks.task import CHOICE, LETTERS, MATH, NUMBER, TEXT, Example, Task

TASK_KINDS = (NUMBER, CHOICE, MATH, TEXT)
DEFAULT_GRADER = {NUMBER: "number", CHOICE: "letter", MATH: "math", TEXT: "text"}
_MIN_ROWS_TO_SHUFFLE = 10
"""From this number of rows on, choices are shuffled if the correct letter is always the same."""


@dataclass(frozen=True)
class TaskFile:
    """The description of a task, from a TOML file or flags."""

    file: str = ""
    """One data file (JSON lines or CSV, gzipped or not) for all splits."""
    train: str = ""
    """Data files for splits that exist already; ``file`` and these exclude each other."""
    validation: str = ""
    test: str = ""
    name: str = ""
    kind: str = NUMBER
    """``number``, ``choice``, ``math`` or ``text``."""
    question: str = "question"
    """Column of the question."""
    answer: str = "answer"
    """Column of the answer; with choices the letter or text of the correct choice."""
    choices: str | tuple[str, ...] = ()
    """Column that holds a list of choices, or the columns that hold one choice each."""
    group: str = ""
    """Column whose equal values must stay in one split."""
    grader: str = ""
    """``number``, ``letter``, ``math``, ``text``, or ``file.py:function`` of the user's own."""
    test_size: int | None = None
    """Number of test examples; by default 40 % of a single file."""
    prompts: Mapping[str, Any] | None = None
    """Prompt templates, see PromptTemplates."""

    def __post_init__(self) -> None:
        """Reject invalid values."""
        for name in ("file", "train", "validation", "test", "name", "question", "answer", "group", "grader"):
            if not isinstance(getattr(self, name), str):
                raise TaskError(f"{name} = {shorten_value(getattr(self, name))} is not allowed: it must be a string")
        if not isinstance(self.choices, str | tuple) or not isinstance(self.prompts, Mapping | None):
            raise TaskError("choices must be a column or a list of columns, and prompts a table")
        check_choice("kind", self.kind, TASK_KINDS)
        parts = [part for part in (self.train, self.validation, self.test) if part]
        if bool(self.file) == bool(parts):
            raise TaskError(
                "a task names either one data file (file) or files for its splits (train, validation, test)"
            )
        if self.kind == CHOICE and not self.choices:
            raise TaskError("a task of kind choice names its choices: one column with a list, or several columns")
        if self.test_size is not None:
            check_integer("test_size", self.test_size, minimum=1)


def read_task_file(path: Path) -> Task:
    """Read a task from a TOML file; its data files are relative to it."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TaskError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    if isinstance(values.get("choices"), list):
        values["choices"] = tuple(values["choices"])
    return build_task_from_file(build_settings(TaskFile, values, str(path)), path.parent, path.stem)


def build_task_from_file(task_file: TaskFile, folder: Path, default_name: str) -> Task:
    """Build the task; read and check its examples."""
    files = {
        "train": task_file.train,
        "validation": task_file.validation,
        "test": task_file.test,
        "all": task_file.file,
    }
    rows = {name: _read_examples(folder / file, task_file) for name, file in files.items() if file}
    pools = {name: leave_out_repeated_rows(examples) for name, examples in rows.items()}
    texts = build_settings(PromptTemplates, {**DEFAULT_TEXTS[task_file.kind], **(task_file.prompts or {})}, "[prompts]")
    return Task(
        task_file.name or default_name,
        task_file.kind,
        _make_grader(task_file, folder),
        texts,
        task_file.test_size,
        pools,
        keeps_validation=bool(task_file.train and task_file.validation),
        repeated_rows=sum(map(len, rows.values())) - sum(map(len, pools.values())),
    )


def _read_examples(path: Path, task_file: TaskFile) -> tuple[Example, ...]:
    examples = rows_to_examples(read_rows(path), partial(_make_example, task_file), path.name, 1)
    if not examples:
        raise TaskError(f"{path} holds no rows")
    if (
        len(examples) >= _MIN_ROWS_TO_SHUFFLE
        and task_file.kind == CHOICE
        and len({example.answer for example in examples}) == 1
    ):
        examples = tuple(map(_shuffle_choices, examples))
    return examples


def leave_out_repeated_rows(examples: Sequence[Example]) -> tuple[Example, ...]:
    """The first of all rows with the same question and answer: the others are no further evidence."""
    distinct = {
        (example.normalized_question, example.answer, example.choices): example for example in reversed(examples)
    }
    return tuple(distinct.values())[::-1]


def _shuffle_choices(example: Example) -> Example:
    """Shuffle the choices by a digest of the question: a correct answer must not always be the first."""
    order = sorted(
        range(len(example.choices)),
        key=lambda index: hashlib.sha256(f"{example.question}/{example.choices[index]}".encode()).digest(),
    )
    return dataclasses.replace(
        example,
        choices=tuple(example.choices[index] for index in order),
        answer=LETTERS[order.index(example.correct_choice)],
    )


def _make_example(task_file: TaskFile, row: Mapping[str, Any], key: str) -> Example:
    question, answer = (_read_column_as_text(row, column) for column in (task_file.question, task_file.answer))
    group = _read_column_as_text(row, task_file.group) if task_file.group else ""
    if task_file.kind == NUMBER and not task_file.grader:
        answer = _remove_worked_solution(answer)
    if task_file.kind != CHOICE:
        return Example(key, question, answer, group=group)
    choices = _read_choices(row, task_file.choices)
    return Example(key, question, _find_correct_letter(answer, choices), choices, group)


def _remove_worked_solution(answer: str) -> str:
    """The number behind ``####``, which ends a worked solution in files made like GSM8K's."""
    _, separator, number = answer.rpartition("####")
    if separator and not number.strip():
        raise TaskError(f"the answer {shorten_value(answer)} has no number behind '####'")
    return number.strip()


def _read_column_as_text(row: Mapping[str, Any], column: str) -> str:
    if column not in row:
        raise TaskError(
            f"there is no column {column!r}; the columns are {', '.join(map(str, row))}; name yours with --question,"
            " --answer and --choices"
        )
    value = row[column]
    if isinstance(value, dict | list | bool) or value is None or not str(value).strip():
        raise TaskError(f"the column {column!r} holds {shorten_value(value)}, not a string or number")
    return str(value).strip()


def _read_choices(row: Mapping[str, Any], columns: str | Sequence[str]) -> tuple[str, ...]:
    value = row.get(columns) if isinstance(columns, str) else [_read_column_as_text(row, column) for column in columns]
    if isinstance(value, str):  # a CSV cell
        try:
            value = json.loads(value)
        except ValueError:
            value = value.split("|")
    if not isinstance(value, list) or not 2 <= len(value) <= len(LETTERS):
        raise TaskError(f"{columns!r} holds {shorten_value(value)}, not a list of 2 to {len(LETTERS)} choices")
    choices = tuple("" if choice is None else str(choice).strip() for choice in value)
    if "" in choices or len(set(choices)) < len(choices):
        raise TaskError(f"the choices {shorten_value(list(value))} must be different strings, none empty")
    return choices


def _find_correct_letter(answer: str, choices: tuple[str, ...]) -> str:
    if answer in choices:
        return LETTERS[choices.index(answer)]
    letter = answer.strip("(). ").upper()
    if len(letter) == 1 and letter in LETTERS[: len(choices)]:
        return letter
    raise TaskError(
        f"the answer {answer!r} is neither one of the choices nor a letter from A to {LETTERS[len(choices) - 1]};"
        " name the column of the answer among the choices too"
    )


# --- the user's own grader -----------------------------------------------------------------------------------


def find_own_grader(task: str) -> Path | None:
    """The Python file that a task's own grader is in; None without one. Nothing is imported."""
    if not task.endswith(".toml"):  # as load_task tells them; a suffix would miss a file called .toml
        return None
    path = Path(task)
    try:
        grader = tomllib.loads(path.read_text(encoding="utf-8")).get("grader")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return None  # it cannot be loaded either
    if not isinstance(grader, str) or ":" not in grader:
        return None
    return path.parent / grader.rpartition(":")[0]


def _make_grader(task_file: TaskFile, folder: Path) -> Grader:
    name = task_file.grader or DEFAULT_GRADER[task_file.kind]
    if ":" not in name:
        check_choice("grader", name, tuple(GRADERS))
        return GRADERS[name]
    file, _, function = name.rpartition(":")
    path = folder / file
    if not path.is_file():
        raise TaskError(f"grader = {name!r}: there is no file {path}")
    grade = getattr(_import_file(path), function, None)
    if not callable(grade):
        raise TaskError(f"grader = {name!r}: {path} has no function {function!r}")
    # The version is a digest of the code: a changed grader never uses old scores.
    return Grader(
        name, hashlib.sha256(path.read_bytes()).hexdigest()[:16], partial(_grade_with_user_function, grade, name)
    )


def _import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TaskError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 the user's code may raise anything
        raise TaskError(f"{path} cannot be imported: {type(error).__name__}: {error}") from None
    return module


def _grade_with_user_function(
    grade: Callable[[str, str, tuple[str, ...]], object], name: str, text: str, answer: str, choices: tuple[str, ...]
) -> GradedAnswer:
    try:
        is_correct = grade(text, answer, choices)
    except Exception as error:  # noqa: BLE001 the user's code may raise anything
        raise TaskError(f"the grader {name} failed on {shorten_value(text)}: {type(error).__name__}: {error}") from None
    if not isinstance(is_correct, bool):
        raise TaskError(f"the grader {name} returned {shorten_value(is_correct)}; it must return True or False")
    return GradedAnswer(text.strip(), is_correct)
