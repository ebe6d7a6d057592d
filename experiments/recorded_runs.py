"""The runs behind the tables on real models, kept in the repository: a line a run, with the verdict on every test item.

    python -m experiments.recorded_runs --runs FOLDER

keeps what the comparisons under FOLDER have come to, so that a table grows in parts and can be made, and doubted, by
anyone without a GPU. A run that is kept already stays: its test set has been met. Keep where you ran: the commit at
hand is the one that is noted.
"""

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, current_commit, describe_run_hardware
from macro_routing.files import write_atomically
from macro_routing.runs import folder as files
from macro_routing.runs.compare_methods import has_published_sizes
from macro_routing.runs.comparison_results import MethodRun, read_method_runs
from macro_routing.runs.methods import METHODS
from macro_routing.runs.result import STANDARD, RunResult

RECORDED_RUNS = ROOT / "experiments" / "raw" / "runs"
TEST_SETS = "test_sets.json"
RunRecord = dict[str, Any]


def pack_verdicts(bits: Iterable[bool]) -> str:
    """Verdicts in the order of the test set, four to a digit; a leading one keeps the zeros before the first."""
    return f"{int('1' + ''.join(str(int(bit)) for bit in bits), 2):x}"


def unpack_verdicts(digits: str) -> list[bool]:
    """What ``packed`` wrote."""
    return [bit == "1" for bit in f"{int(digits, 16):b}"[1:]]


def record_from_run(arm: MethodRun, folder: Path) -> RunRecord:
    """A run as it is kept."""
    names = list(arm.right[STANDARD])
    facts = folder / files.ORACLE_COUNTS
    return {
        "method": arm.method,
        "seed": arm.seed,
        **describe_origin(json.loads((folder / files.RUN).read_text(encoding="utf-8"))),
        "asked": arm.asked,
        "work": arm.work,
        "seconds": arm.seconds,
        "selection_seconds": arm.selection_seconds,
        "test": digest_test_set(names),
        "right": {name: pack_verdicts(right[one] for one in names) for name, right in arm.right.items()},
        "validation": arm.validation_accuracy,
        "result": result_without_folder(arm.result),
        **({"oracle": json.loads(facts.read_text(encoding="utf-8"))} if facts.is_file() else {}),
    }


def describe_origin(header: dict[str, Any]) -> dict[str, Any]:
    """With what a run was made, read from its header."""
    given = header["config"]["given"]
    asked = {"task": given["task"], "preset": given["preset"], "budget": given["budget"], **given["decoding"]}
    machine = {
        "model": Path(header["model"]["name"]).name,
        "commit": current_commit(),
        "hardware": describe_run_hardware(header),
    }
    return {"settings": asked, **machine}


def digest_test_set(names: Sequence[str]) -> str:
    """What tells a test set from another."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()[:12]


def read_test_sets(kept: Path = RECORDED_RUNS) -> dict[str, list[str]]:
    """The items of every test set that kept runs have met: seeds may share some, which are not new evidence."""
    path = kept / TEST_SETS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def record_test_set(names: Sequence[str], kept: Path = RECORDED_RUNS) -> None:
    """Keep the items of a test set."""
    sets = read_test_sets(kept)
    if digest_test_set(names) in sets:
        return
    sets[digest_test_set(names)] = list(names)
    lines = [f"{json.dumps(mark)}: {json.dumps(items)}" for mark, items in sorted(sets.items())]
    write_atomically(kept / TEST_SETS, "{\n" + ",\n".join(lines) + "\n}\n")


def result_without_folder(result: RunResult) -> dict[str, Any]:
    """A result without the place where it was."""
    return {**result.to_json(), "folder": ""}


def run_from_record(record: RunRecord, test_sets: dict[str, list[str]]) -> MethodRun:
    """A kept run as a part of a comparison; a cost that was not recorded is NaN."""
    names = test_sets[record["test"]]
    right = {name: dict(zip(names, unpack_verdicts(digits), strict=True)) for name, digits in record["right"].items()}
    asked, work, seconds = (math.nan if record[name] is None else record[name] for name in ("asked", "work", "seconds"))
    result, validation = RunResult.from_json(record["result"]), record.get("validation", 0.0)
    selection = record.get("selection_seconds", math.nan)
    return MethodRun(record["method"], record["seed"], result, asked, work, seconds, (), right, validation, selection)


def read_records(name: str, kept: Path = RECORDED_RUNS) -> list[RunRecord]:
    """The kept runs of one comparison."""
    path = kept / f"{name}.jsonl"
    if not kept.is_dir():
        sys.exit(f"{kept} is not a folder of kept runs")
    records: dict[tuple[str, int], RunRecord] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.is_file() else [], 1):
        try:
            record = json.loads(line)
            key = record["method"], record["seed"]
        except (ValueError, TypeError, KeyError):
            sys.exit(f"{path}, line {number} is not a kept run")
        if key in records:
            sys.exit(f"{path}, line {number}: {key[0]} with seed {key[1]} is there twice; leave one of the two")
        records[key] = record
    return list(records.values())


def read_recorded_runs(name: str, kept: Path = RECORDED_RUNS) -> list[MethodRun]:
    """The same, as parts of a comparison; what was kept without its verdicts waits to be measured again."""
    sets = read_test_sets(kept)
    return [run_from_record(record, sets) for record in read_records(name, kept) if "right" in record]


def write_records(name: str, records: Sequence[RunRecord], kept: Path = RECORDED_RUNS) -> None:
    """Write a comparison's file anew, by seed and method."""
    order = sorted(records, key=lambda record: (record["seed"], list(METHODS).index(record["method"])))
    write_atomically(kept / f"{name}.jsonl", "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in order))


def is_recorded(name: str, method: str, seed: int, kept: Path = RECORDED_RUNS) -> bool:
    """Whether a run need not be made."""
    return any((record["method"], record["seed"]) == (method, seed) for record in read_records(name, kept))


def record_runs(runs: Path, kept: Path = RECORDED_RUNS) -> int:
    """Keep every finished run under a folder of comparisons that is not kept yet; how many that were."""
    if not runs.is_dir():
        sys.exit(f"{runs} is not a folder")
    kept.mkdir(parents=True, exist_ok=True)
    added = 0
    for folder in sorted(path for path in runs.iterdir() if path.is_dir()):
        records = read_records(folder.name, kept)
        known = {(record["method"], record["seed"]) for record in records}
        arms = [arm for arm in read_method_runs(folder) if (arm.method, arm.seed) not in known]
        new = [record_from_run(arm, folder / f"{arm.method}-{arm.seed}") for arm in arms]
        _check_same_settings([*records, *new], folder)
        for arm in arms:
            record_test_set(list(arm.right[STANDARD]), kept)
        if new:
            write_records(folder.name, [*records, *new], kept)
        added += len(new)
    return added


def _check_same_settings(records: Sequence[RunRecord], folder: Path) -> None:
    """Refuse to put runs of another model, task or budget into a line of the table.

    Routers have sizes of their own under preset ``paper``, not the budget of the others.
    """
    found = {json.dumps([record["model"], {**record["settings"], "budget": ""}], sort_keys=True) for record in records}
    budgets = {
        record["settings"]["budget"]
        for record in records
        if not has_published_sizes(record["settings"]["preset"], record["method"])
    }
    if len(found) > 1 or len(budgets) > 1:
        found = {json.dumps([record["model"], record["settings"]], sort_keys=True) for record in records}
        sys.exit(f"{folder} was run with another model or other settings than what is kept under its name: {found}")


def describe_comparisons_origin(names: Iterable[str], kept: Path = RECORDED_RUNS, **more: Any) -> dict[str, Any]:
    """What a record that is made of some comparisons says of where it comes from; ``more`` belongs to its settings."""
    return describe_records_origin(
        [record for name in names for record in read_records(name, kept) if "right" in record], **more
    )


def describe_records_origin(records: Sequence[RunRecord], **more: Any) -> dict[str, Any]:
    """The same of some runs."""
    commits = dict.fromkeys(
        one for record in records for one in (record.get("earlier", {}).get("commit"), record["commit"])
    )
    config = {
        "preset": "paper",
        "runs": "experiments/raw/runs",
        "models": sorted({record["model"] for record in records}),
    }
    machines = dict.fromkeys(record["hardware"] for record in records)
    return {
        "config": config | more,
        "commits": ", ".join(filter(None, commits)),
        "where": " / ".join(machines),
    }


def main() -> None:
    """Keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--into", type=Path, default=RECORDED_RUNS)
    arguments = parser.parse_args()
    print(f"{record_runs(arguments.runs, arguments.into)} more runs are kept")


if __name__ == "__main__":
    main()
