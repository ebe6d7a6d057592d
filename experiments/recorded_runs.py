"""The runs behind the tables on real models, kept in the repository: a line a run, with the verdict on every test item.

    python -m experiments.recorded_runs --runs FOLDER

keeps what the comparisons under FOLDER have come to, so that a table grows in parts and can be made, and doubted, by
anyone without a GPU. A run that is kept already stays: its test set has been met. Keep where you ran: the commit at
hand is the one that is noted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, commit, where_run
from macro_routing.runs import folder as files
from macro_routing.runs.comparison_results import MethodRun, read_method_runs
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import STANDARD, RunResult

KEPT = ROOT / "experiments" / "raw" / "runs"
TEST_SETS = "test_sets.json"
Cell = dict[str, Any]


def packed(bits: Iterable[bool]) -> str:
    """Verdicts in the order of the test set, four to a digit; a leading one keeps the zeros before the first."""
    return f"{int('1' + ''.join(str(int(bit)) for bit in bits), 2):x}"


def unpacked(digits: str) -> list[bool]:
    """What ``packed`` wrote."""
    return [bit == "1" for bit in f"{int(digits, 16):b}"[1:]]


def cell_of(arm: MethodRun, place: Path) -> Cell:
    """A run as it is kept."""
    names = list(arm.right[STANDARD])
    facts = place / files.ORACLE_COUNTS
    return {
        "method": arm.method,
        "seed": arm.seed,
        **made_by(json.loads((place / files.RUN).read_text(encoding="utf-8"))),
        "asked": arm.asked,
        "work": arm.work,
        "seconds": arm.seconds,
        "test": test_set(names),
        "right": {name: packed(right[one] for one in names) for name, right in arm.right.items()},
        "result": plain(arm.result),
        **({"oracle": json.loads(facts.read_text(encoding="utf-8"))} if facts.is_file() else {}),
    }


def made_by(header: dict[str, Any]) -> dict[str, Any]:
    """With what a run was made, read from its header."""
    given = header["config"]["given"]
    asked = {"task": given["task"], "preset": given["preset"], "budget": given["budget"], **given["decoding"]}
    machine = {"model": Path(header["model"]["name"]).name, "commit": commit(), "hardware": where_run(header)}
    return {"settings": asked, **machine}


def test_set(names: Sequence[str]) -> str:
    """What tells a test set from another."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()[:12]


def read_test_sets(kept: Path = KEPT) -> dict[str, list[str]]:
    """The items of every test set that kept runs have met: seeds may share some, which are no new evidence."""
    path = kept / TEST_SETS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def note_test_set(names: Sequence[str], kept: Path = KEPT) -> None:
    """Keep the items of a test set."""
    sets = read_test_sets(kept)
    if test_set(names) in sets:
        return
    sets[test_set(names)] = list(names)
    lines = [f"{json.dumps(mark)}: {json.dumps(items)}" for mark, items in sorted(sets.items())]
    _write(kept / TEST_SETS, "{\n" + ",\n".join(lines) + "\n}\n")


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def plain(result: RunResult) -> dict[str, Any]:
    """A result without the place where it was."""
    return {**result.to_json(), "folder": ""}


def arm_of(cell: Cell, test_sets: dict[str, list[str]]) -> MethodRun:
    """A kept run as a part of a comparison; a cost that was not recorded is no number."""
    names = test_sets[cell["test"]]
    right = {name: dict(zip(names, unpacked(digits), strict=True)) for name, digits in cell["right"].items()}
    asked, work, seconds = (math.nan if cell[name] is None else cell[name] for name in ("asked", "work", "seconds"))
    return MethodRun(cell["method"], cell["seed"], RunResult.from_json(cell["result"]), asked, work, seconds, (), right)


def read_cells(name: str, kept: Path = KEPT) -> list[Cell]:
    """The kept runs of one comparison."""
    path = kept / f"{name}.jsonl"
    if not kept.is_dir():
        sys.exit(f"{kept} is no folder of kept runs")
    cells: dict[tuple[str, int], Cell] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.is_file() else [], 1):
        try:
            cell = json.loads(line)
            key = cell["method"], cell["seed"]
        except (ValueError, TypeError, KeyError):
            sys.exit(f"{path}, line {number} is no kept run")
        if key in cells:
            sys.exit(f"{path}, line {number}: {key[0]} with seed {key[1]} is there twice; leave one of the two")
        cells[key] = cell
    return list(cells.values())


def kept_arms(name: str, kept: Path = KEPT) -> list[MethodRun]:
    """The same, as parts of a comparison; what was kept without its verdicts waits to be measured again."""
    sets = read_test_sets(kept)
    return [arm_of(cell, sets) for cell in read_cells(name, kept) if "right" in cell]


def write_cells(name: str, cells: Sequence[Cell], kept: Path = KEPT) -> None:
    """Write a comparison's file anew, by seed and method."""
    order = sorted(cells, key=lambda cell: (cell["seed"], list(METHODS).index(cell["method"])))
    _write(kept / f"{name}.jsonl", "".join(json.dumps(cell, ensure_ascii=False) + "\n" for cell in order))


def is_kept(name: str, method: str, seed: int, kept: Path = KEPT) -> bool:
    """Whether a run need not be made."""
    return any((cell["method"], cell["seed"]) == (method, seed) for cell in read_cells(name, kept))


def keep(runs: Path, kept: Path = KEPT) -> int:
    """Keep every finished run under a folder of comparisons that is not kept yet; how many that were."""
    if not runs.is_dir():
        sys.exit(f"{runs} is no folder")
    kept.mkdir(parents=True, exist_ok=True)
    added = 0
    for folder in sorted(path for path in runs.iterdir() if path.is_dir()):
        cells = read_cells(folder.name, kept)
        known = {(cell["method"], cell["seed"]) for cell in cells}
        arms = [arm for arm in read_method_runs(folder) if (arm.method, arm.seed) not in known]
        new = [cell_of(arm, folder / f"{arm.method}-{arm.seed}") for arm in arms]
        _check_alike([*cells, *new], folder)
        for arm in arms:
            note_test_set(list(arm.right[STANDARD]), kept)
        if new:
            write_cells(folder.name, [*cells, *new], kept)
        added += len(new)
    return added


def _check_alike(cells: Sequence[Cell], folder: Path) -> None:
    """Refuse to put runs of another model, task or budget into a line of the table."""
    found = {json.dumps([cell["model"], cell["settings"]], sort_keys=True) for cell in cells}
    if len(found) > 1:
        sys.exit(f"{folder} was run with another model or other settings than what is kept under its name: {found}")


def origin(names: Iterable[str], kept: Path = KEPT, **more: Any) -> dict[str, Any]:
    """What a record that is made of some comparisons says of where it comes from; ``more`` belongs to its settings."""
    return origin_of([cell for name in names for cell in read_cells(name, kept) if "right" in cell], **more)


def origin_of(cells: Sequence[Cell], **more: Any) -> dict[str, Any]:
    """The same of some runs."""
    commits = dict.fromkeys(one for cell in cells for one in (cell.get("earlier", {}).get("commit"), cell["commit"]))
    config = {"preset": "paper", "runs": "experiments/raw/runs", "models": sorted({cell["model"] for cell in cells})}
    machines = dict.fromkeys(cell["hardware"] for cell in cells)
    return {"config": config | more, "commits": ", ".join(filter(None, commits)), "where": " / ".join(machines)}


def main() -> None:
    """Keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--into", type=Path, default=KEPT)
    arguments = parser.parse_args()
    print(f"{keep(arguments.runs, arguments.into)} more runs are kept")


if __name__ == "__main__":
    main()
