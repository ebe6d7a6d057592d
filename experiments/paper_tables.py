"""What is missing of ``macro study paper``, many runs beside each other on one GPU.

    python -m experiments.paper_tables CONFIG --out FOLDER [--model-dir FOLDER] [--minutes 28] [--slots 10]
        [--memory 0.92] [--kept FOLDER]
    python -m experiments.paper_tables CONFIG [--kept FOLDER] [--write docs]

One search of a small model leaves most of a GPU idle. Here ``--slots`` processes share it, each with its share of
``--memory``; each begins with a part of the units and goes on with what nobody has begun. When the minutes are over all
are interrupted together. What was interrupted goes on when the same command is given again with the same FOLDER, on
this machine or on another one that the FOLDER was copied to. Finished runs of main tables are kept
(``experiments.recorded_runs``) and not run again. The second form makes the tables of what is kept.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, write_record
from experiments.method_comparison import limit_gpu_memory
from experiments.parallel_runs import run_in_parallel, share_cores
from experiments.recorded_runs import (
    describe_records_origin,
    is_recorded,
    read_recorded_runs,
    read_records,
    record_runs,
)
from macro_routing.cli.console import read_toml
from macro_routing.cli.progress import ProgressLinePrinter
from macro_routing.report.formatting import shorten_model_name
from macro_routing.runs.result import SELECTED
from macro_routing.studies.folder import StudyFolder
from macro_routing.studies.main_table import find_first_searching_method, get_model_task_folder, make_main_tables
from macro_routing.studies.paper import PaperSession
from macro_routing.studies.paper_config import (
    MAIN_TABLE,
    PaperConfig,
    PaperItem,
    PaperUnit,
    list_units,
    read_paper_config,
)
from macro_routing.studies.study_result import DATA, write_study_result

KEPT = ROOT / "experiments" / "raw" / "paper"


def make_session(arguments: argparse.Namespace) -> PaperSession:
    """The paper of this call."""
    config = read_paper_config(read_toml(arguments.config), arguments.model_dir)
    return PaperSession(config, arguments.out, ProgressLinePrinter(arguments.out), arguments.minutes)


def order_units(units: Sequence[PaperUnit], slot: int, slots: int) -> list[PaperUnit]:
    """A process's own part, then the others', from their ends: where they come last."""
    own = units[slot::slots]
    return [*own, *(unit for unit in reversed(units) if unit not in own)]


def run_slot(arguments: argparse.Namespace) -> None:
    """One of the processes."""
    limit_gpu_memory(arguments.memory / arguments.slots)
    session = make_session(arguments)
    missing = [unit for unit in list_units(session.config) if not is_kept(unit, arguments.kept)]
    session.run_units(order_units(missing, arguments.slot, arguments.slots))


def name_kept_runs(item: PaperItem, model: str, task: Any) -> str:
    """The name that runs of a model on a task are kept by: that of their folder."""
    return get_model_task_folder(StudyFolder(Path(item.name)), model, task).name


def is_kept(unit: PaperUnit, kept: Path) -> bool:
    """Whether a run of a main table is kept, and need not be made."""
    if unit.item.study != MAIN_TABLE or not kept.is_dir():
        return False
    assert unit.seed is not None
    return is_recorded(name_kept_runs(unit.item, unit.model, unit.parsed_task), unit.method, unit.seed, kept)


def keep_finished_runs(session: PaperSession, kept: Path) -> int:
    """Keep the runs of all main tables that have finished; how many that were."""
    folders = [StudyFolder(session.out / item.name) for item in session.config.items if item.study == MAIN_TABLE]
    places = [folder.run_folder("any").parent for folder in folders]
    added = 0
    for place in places:
        try:
            added += record_runs(place, kept) if place.is_dir() else 0
        except SystemExit as refusal:  # the tables are made all the same
            print(refusal)
    return added


def run_all_slots(arguments: argparse.Namespace, words: Sequence[str]) -> None:
    """All processes, and the tables of what is there at the end."""
    began = time.monotonic()
    end = began + 60 * arguments.minutes
    logs = arguments.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)

    def start(slot: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "experiments.paper_tables", *words, "--slot", str(slot)]
        with (logs / f"{slot}.txt").open("ab") as log:
            # A group of its own: an interruption from the keyboard comes through us, to all at once.
            return subprocess.Popen(  # noqa: S603
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=share_cores(arguments.slots),
            )

    slots: Any = range(arguments.slots)
    for slot, status in run_in_parallel(slots, arguments.slots, end, start):
        said = "interrupted" if status is None else f"ended with {status}"
        print(f"{time.monotonic() - began:6.0f} s  process {slot}: {said}", flush=True)
    session = make_session(arguments)
    print(f"{keep_finished_runs(session, arguments.kept)} more runs are kept in {arguments.kept}")
    result = session.gather()
    for row in result.table.rows:
        print(f"{row['item']}: {row['done']} of {row['units']}, {row['hours']:.2f} hours")
    print(result.headline)


# --- the tables of what is kept -----------------------------------------------------------------------------------


def write_kept_tables(config: PaperConfig, path: Path, kept: Path, docs: Path) -> None:
    """Records and pictures of every main table of which runs are kept."""
    for item in config.items:
        if item.study == MAIN_TABLE:
            names = {
                (shorten_model_name(model), task): name_kept_runs(item, model, task)
                for model in item.models
                for task in item.settings.task_names
            }
            _write_item(item, path, names, kept, docs)


def _write_item(item: PaperItem, path: Path, names: dict[Any, str], kept: Path, docs: Path) -> None:
    methods = item.settings.methods
    found = {
        cell: [run for run in read_recorded_runs(name, kept) if run.method in methods and run.seed in item.seeds]
        for cell, name in names.items()
    }
    leading = find_first_searching_method(methods)
    runs = {cell: of_cell for cell, of_cell in found.items() if any(run.method == leading for run in of_cell)}
    if not runs:
        print(f"{item.name}: nothing is kept")
        return
    records = [record for cell in runs for record in read_records(names[cell], kept) if record["method"] in methods]
    origin = describe_records_origin(records, runs="experiments/raw/paper", item=item.name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = StudyFolder(Path(scratch))
        write_study_result(folder, make_main_tables(runs, SELECTED[leading]), {}, "macro study paper", print)
        data = json.loads((folder.path / DATA).read_text(encoding="utf-8"))
        for picture in folder.path.glob("*.svg"):
            shutil.copyfile(picture, docs / "pictures" / f"{name_item_record(item, picture.stem)}.svg")
    print(f"{item.name}: {data['headline']}")
    for name, table in data["tables"].items():
        heads = list(dict.fromkeys(head for row in table["shown"] for head in row))
        columns = {f"c{index}": head for index, head in enumerate(heads)}
        shown = [{key: row.get(head, "") for key, head in columns.items()} for row in table["shown"]]
        write_record(
            docs / "data" / f"{name_item_record(item, name)}.json",
            command=f"python -m experiments.paper_tables {path} --out FOLDER --model-dir MODELS",
            config=origin["config"] | {"headline": data["headline"], "title": table["title"], "notes": table["notes"]},
            seed=", ".join(map(str, item.seeds)),
            columns=columns,
            results=[{**cells, "raw": row} for cells, row in zip(shown, table["rows"], strict=True)],
            where=origin["where"],
            commits=origin["commits"],
        )


def name_item_record(item: PaperItem, part: str) -> str:
    """The name of the record or picture of a part of a main table."""
    base = f"paper_{item.name.replace('-', '_')}"
    return base if part in {"table", "figure"} else f"{base}_{part.replace('-', '_')}"


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, and gather."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model-dir", type=Path)
    parser.add_argument("--minutes", type=float, default=28.0)
    parser.add_argument("--slots", type=int, default=10, help="processes at a time")
    parser.add_argument("--memory", type=float, default=0.92, help="share of the GPU's, for all processes together")
    parser.add_argument("--kept", type=Path, default=KEPT, help="finished runs of main tables")
    parser.add_argument("--write", type=Path, help="write the tables of what is kept into this folder")
    parser.add_argument("--slot", type=int, help=argparse.SUPPRESS)
    words = sys.argv[1:] if words is None else list(words)
    arguments = parser.parse_args(words)
    if arguments.slots < 1:
        sys.exit("--slots: one process at a time is the least")
    if (arguments.out is None) == (arguments.write is None):
        sys.exit("name --out FOLDER to run what is missing, or --write docs for the tables of what is kept")
    if arguments.write:
        config = read_paper_config(read_toml(arguments.config), arguments.model_dir)
        write_kept_tables(config, arguments.config, arguments.kept, arguments.write)
    elif arguments.slot is None:
        run_all_slots(arguments, words)
    else:
        run_slot(arguments)


if __name__ == "__main__":
    main()
