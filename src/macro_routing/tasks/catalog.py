"""Load a task by its name: a benchmark from a folder or the hub, a synthetic task, or the user's own file."""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

from macro_routing.errors import TaskError, suggest_name
from macro_routing.tasks.benchmarks import BENCHMARKS, Benchmark
from macro_routing.tasks.data_files import DATA_FILE_SUFFIXES, Row, read_rows, rows_to_examples
from macro_routing.tasks.grading import GRADERS
from macro_routing.tasks.prompts import DEFAULT_TEXTS, PromptTemplates
from macro_routing.tasks.synthetic import SYNTHETIC_TASKS, generate_pools
from macro_routing.tasks.task import CHOICE, NUMBER, Task
from macro_routing.tasks.task_files import DEFAULT_GRADER, TaskFile, build_task_from_file, read_task_file


def list_task_names() -> list[str]:
    """List the names of benchmarks and synthetic tasks."""
    return [*BENCHMARKS, *SYNTHETIC_TASKS]


def load_task(  # noqa: PLR0913
    name: str,
    data_dir: Path | None = None,
    seed: int = 0,
    *,
    question: str = "question",
    answer: str = "answer",
    choices: str = "",
    kind: str | None = None,
) -> Task:
    """Load a benchmark, a synthetic task made from ``seed``, a task file (TOML) or a data file (JSON lines, CSV).

    Benchmarks are read from ``data_dir`` (else ``MACRO_DATA_DIR``), else from the hub. The other arguments name the
    columns of a data file; several columns of ``choices`` are separated by commas.
    """
    if name in SYNTHETIC_TASKS:
        task = SYNTHETIC_TASKS[name]
        texts = PromptTemplates(**{**DEFAULT_TEXTS[task.kind], **task.prompts})
        return Task(name, task.kind, GRADERS[DEFAULT_GRADER[task.kind]], texts, pools=generate_pools(task, seed))
    if name in BENCHMARKS:
        return _load_benchmark(BENCHMARKS[name], data_dir)
    if name.endswith(".toml"):
        return read_task_file(Path(name))
    if name.endswith(DATA_FILE_SUFFIXES):
        return _load_task_from_data_file(name, question, answer, choices, kind)
    raise TaskError(
        f"{name!r} is not a task: give a name ({', '.join(list_task_names())})"
        f" or your own .toml, .jsonl or .csv file{suggest_name(name, list_task_names())}"
    )


def _load_task_from_data_file(name: str, question: str, answer: str, choices: str, kind: str | None) -> Task:
    columns = tuple(column.strip() for column in choices.split(",") if column.strip())
    if not columns and kind in {None, CHOICE}:
        columns = ("choices",) if any("choices" in row for _, row in itertools.islice(read_rows(Path(name)), 1)) else ()
    task_file = TaskFile(
        file=name,
        kind=kind or (CHOICE if columns else NUMBER),
        question=question,
        answer=answer,
        choices=columns[0] if len(columns) == 1 else columns,
    )
    return build_task_from_file(task_file, Path(), Path(name).name.split(".")[0])


def _load_benchmark(entry: Benchmark, data_dir: Path | None) -> Task:
    folder = data_dir or (Path(os.environ["MACRO_DATA_DIR"]) if os.environ.get("MACRO_DATA_DIR") else None)
    rows = _load_hub_rows(entry) if folder is None else _read_dataset_files(entry, folder)
    pools = {
        split: rows_to_examples(split_rows, entry.read, f"{entry.name}/{split}", 0)
        for split, split_rows in rows.items()
        if split not in entry.unused_splits
    }
    return Task(
        entry.name,
        entry.kind,
        GRADERS[DEFAULT_GRADER[entry.kind]],
        PromptTemplates(**DEFAULT_TEXTS[entry.kind]),
        entry.test_size,
        pools,
    )


def _read_dataset_files(entry: Benchmark, folder: Path) -> dict[str, Iterable[Row]]:
    """Read the files in the benchmark's folder, which are named by split."""
    home = folder / entry.folder
    files = {path.name.split(".")[0]: path for path in sorted(home.glob("*.jsonl*"))}
    if not files:
        raise TaskError(
            f"{entry.name}: there are no .jsonl files in {home}; give the folder that holds {entry.folder}/"
            " with --data-dir, or leave it out to load from the hub"
        )
    return {split: read_rows(path) for split, path in files.items()}


def _load_hub_rows(entry: Benchmark) -> dict[str, Iterable[Row]]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise TaskError(
            f"{entry.name} is loaded from the hub with datasets: pip install '.[eval]' in the checkout, or give"
            " --data-dir"
        ) from None
    try:
        dataset = load_dataset(entry.hub_id, entry.hub_config)
    except Exception as error:  # noqa: BLE001 the library below raises whatever its network layer raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TaskError(
            f"{entry.name} cannot be loaded from the hub ({entry.hub_id}): {reason};"
            " without a network give a folder with its files with --data-dir or MACRO_DATA_DIR"
        ) from None
    return {
        split: ((f"{entry.hub_id} {split} row {n}", dict(row)) for n, row in enumerate(rows))
        for split, rows in dataset.items()
    }
