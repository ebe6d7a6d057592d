"""Searches kept as one line each in a file, so that a command can be stopped and repeated; their tables and records."""

import argparse
import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import current_commit, describe_run_hardware, write_record
from experiments.method_comparison import check_selection, limit_gpu_memory
from experiments.recorded_runs import pack_verdicts, unpack_verdicts

Line = dict[str, Any]
Job = tuple[str, Callable[[], Line]]
"""A search that is missing: its name, and what runs it."""


def run_missing(
    arguments: argparse.Namespace, method: str, list_missing: Callable[[argparse.Namespace, Any], Iterable[Job]]
) -> None:
    """Where a model is named: search by search while there is time."""
    from macro_routing.models import load_model

    check_selection(arguments, [method])
    if not arguments.model:
        return
    arguments.runs.mkdir(parents=True, exist_ok=True)
    limit_gpu_memory(arguments.share)
    end = time.monotonic() + 60 * arguments.minutes
    for name, run in list_missing(arguments, load_model(arguments.model)):
        if time.monotonic() > end:
            return
        try:
            line = run()
        except Exception:  # noqa: BLE001 one broken search must not cost the others
            traceback.print_exc()
            continue
        with arguments.kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{name}: {line['verdict']} ({line['seconds']:.0f} s)", flush=True)


def describe_search(
    frozen: Any, folder: Path, result: Any, test: Sequence[Any], correct: Mapping[str, Iterable[bool]]
) -> Line:
    """What every line has: the search, and which test examples each way to answer got right."""
    from macro_routing.runs.folder import RUN

    header = json.loads((folder / RUN).read_text(encoding="utf-8"))
    return {
        "model": Path(frozen.name).name,
        "commit": current_commit(),
        "hardware": describe_run_hardware(header),
        "layers": frozen.layers,
        "verdict": result.verdict,
        "examples": [example.id for example in test],
        "right": {name: pack_verdicts(verdicts) for name, verdicts in correct.items()},
    }


def read_kept(path: Path) -> list[Line]:
    """All kept searches."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def read_correct(line: Line, name: str) -> dict[str, bool]:
    """Which test examples are answered correctly."""
    return dict(zip(line["examples"], unpack_verdicts(line["right"][name]), strict=True))


def format_difference(lines: Sequence[Line], name: str, standard: str) -> str:
    """Mean difference to the standard pass over the seeds, in points, with its interval over examples."""
    from macro_routing.studies.paired_comparisons import estimate_difference_over_seeds

    pairs = [(read_correct(line, standard), read_correct(line, name)) for line in lines]
    difference = estimate_difference_over_seeds([pairs])
    return f"{100 * difference.mean:+.1f} ({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Without the routes."""
    for row in rows:
        print({name: value for name, value in row.items() if name != "raw"})


def write_kept_record(
    path: Path, module: str, lines: Sequence[Line], columns: Mapping[str, str], rows: Sequence[Line], **config: Any
) -> None:
    """The record of a table, with where its searches were run."""

    def join(name: str) -> str:
        return ", ".join(map(str, sorted({line[name] for line in lines})))

    write_record(
        path,
        command=f"python -m {module} MODEL --runs FOLDER",
        config={"models": sorted({line["model"] for line in lines}), **config},
        seed=join("seed"),
        where=join("hardware"),
        commits=join("commit"),
        columns=columns,
        results=rows,
    )
