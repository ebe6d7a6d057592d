"""The page "Reproducing the paper": every item with its command, GPU-hours, the paper's figures, ours, and its status.

    python -m experiments.reproducing_paper [--runs FOLDER] [--kept FOLDER] [--write docs/data/reproducing.json]

``--runs`` is a folder that ``macro study paper`` has filled with the paper's models (``examples/paper.toml``). The runs
of the models that can be had (``examples/paper_available_models.toml``) are those that are kept. Where an item was not
run, the figures are those of an earlier study of another model, which is named.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, write_record
from experiments.paper_selection import count_published, read_cells
from experiments.paper_tables import KEPT, is_kept, name_item_record, name_kept_runs
from experiments.recorded_runs import read_records
from macro_routing.cli.console import read_toml
from macro_routing.report.formatting import format_signed
from macro_routing.studies.paper import PaperSession
from macro_routing.studies.paper_config import PaperItem, PaperUnit, read_paper_config
from macro_routing.studies.study_result import DATA
from macro_routing.studies.tables import Row

PAPER, AVAILABLE = (ROOT / "examples" / name for name in ("paper.toml", "paper_available_models.toml"))
RECORDS = ROOT / "docs" / "data"
COLUMNS = {
    "item": "item",
    "shows": "shows",
    "command": "command",
    "hours": "GPU-hours, about",
    "paper": "paper",
    "ours": "ours",
    "status": "status",
}
PRINTED = {
    "llama": "+0.35 points (0.03 to 0.79), p = 0.033 by a test over benchmarks and seeds",
    "ablation": "no displacement −0.49, no operator context −1.55, no phase −3.47 points",
    "sweep-beta": "flat",
    "sweep-elite": "1 is significantly worse, and no other value",
    "logit-lens": "a picture",
    "one-route": "Qwen3-1.7B +2.79 in domain, +9.02 out of domain; Qwen3-4B +0.30 and +1.12",
    "transfer": "a picture; the best cells are mostly those of the same benchmark",
    "composition": "adds in 0 to 54 %, moves in 39 to 69 % of the routes, by model",
    "cost": "+16.1 % time per item, +4.6 % memory, on an A40",
}
"""Figures as the paper prints them."""
STUDIED = {
    "ablation": "ablation",
    "sweep-beta": "sweep_beta",
    "sweep-elite": "sweep_elite",
    "logit-lens": "logit_lens",
    "one-route": "one_route",
    "transfer": "transfer",
    "composition": "composition",
    "cost": "cost",
}
"""Records of the same studies on another model."""
NO_MODELS, NO_GPU = "not run (no weights)", "not run (no GPU time)"
"""Why nothing was run, in short; the page explains it."""


DISAGREEMENT = 5
"""Percent; the routes that preset ``paper`` has found disagree with the standard pass on more."""


def describe_published_table() -> str:
    """The paper's main table in figures."""
    cells = read_cells(["MACRO", "MACRO (top-1)"])
    counts, size = count_published(), 13
    means = [100 * sum(cell.gains[0] for cell in cells[start : start + size]) / size for start in range(0, 78, size)]
    return (
        f"{format_signed(min(means), 2)} to {format_signed(max(means), 2)} points by model; {counts['wins']} wins,"
        f" {counts['ties']} ties, {counts['losses']} losses; 1.6 hours of search against Dr.LLM's 14.8"
    )


def read_record(name: str) -> dict[str, Any]:
    """A record in docs/data."""
    contents: dict[str, Any] = json.loads((RECORDS / name).read_text(encoding="utf-8"))
    return contents


def describe_studied(item: str) -> str:
    """What the same study came to on another model."""
    if item not in STUDIED:
        return ""
    config = read_record(f"study_{STUDIED[item]}.json")["config"]
    return f"{config['model'] or 'several searches'}: {config['headline']}"


@dataclass
class KeptSession(PaperSession):
    """A call without a folder of its own, whose main tables' runs are those that are kept."""

    kept: Path = KEPT

    def is_finished(self, unit: PaperUnit) -> bool:
        """Whether a run is kept."""
        return is_kept(unit, self.kept)

    def read_seconds(self, unit: PaperUnit) -> float:
        """Time that the search took; its test is not counted."""
        if not self.is_finished(unit):
            return 0.0
        records = read_records(name_kept_runs(unit.item, unit.model, unit.parsed_task), self.kept)
        wanted = (unit.method, unit.seed)
        return sum(record["seconds"] or 0.0 for record in records if (record["method"], record["seed"]) == wanted)


def make_available_rows(kept: Path, records: Path = RECORDS) -> list[dict[str, Any]]:
    """A line per item of the models that can be had, from what is kept."""
    session = KeptSession(read_paper_config(read_toml(AVAILABLE)), Path("studies/paper"), kept=kept)
    lines: dict[str, Row] = {line["item"]: line for line in session.list_items().table.rows}
    rows = []
    for item in session.config.items:
        line, path = lines[item.name], records / f"{name_item_record(item, 'table')}.json"
        rows.append(
            {
                "item": line["item"],
                "shows": line["shows"],
                "hours": round(line["expected_hours"] + line["hours"], 2),
                "ours": json.loads(path.read_text(encoding="utf-8"))["config"]["headline"] if path.is_file() else "",
                "status": describe_status(item, lines, NO_GPU, is_there=path.is_file()),
            }
        )
    return rows


def make_rows(config: Path, runs: Path | None, reason: str) -> list[dict[str, Any]]:
    """A line per item of a configuration; ``reason`` says why one was not run."""
    session = PaperSession(read_paper_config(read_toml(config)), runs or Path("studies/paper"))
    command = f"macro study paper {config.relative_to(ROOT)} --items"
    lines: dict[str, Row] = {line["item"]: line for line in session.list_items().table.rows}
    rows = []
    for item in session.config.items:
        line = lines[item.name]
        result = session.out / item.name / DATA  # gathered from the item's units
        is_there = runs is not None and result.is_file()
        ours = describe_studied(item.name)
        if is_there:
            ours = json.loads(result.read_text(encoding="utf-8"))["headline"]
        rows.append(
            {
                "item": line["item"],
                "shows": line["shows"],
                "command": f"`{command} {line['item']}`",
                "hours": round(line["expected_hours"] + line["hours"], 2),
                "paper": describe_published_table() if line["item"] == "main-table" else PRINTED.get(line["item"], ""),
                "ours": ours,
                "status": describe_status(item, lines, reason, is_there=is_there),
            }
        )
    return rows


def describe_status(item: PaperItem, lines: Mapping[str, Row], reason: str, *, is_there: bool) -> str:
    """What is done of an item; one that runs nothing itself is done when the tables that it reads are."""
    parts = [lines[item.name]] if lines[item.name]["units"] else [lines[name] for name in item.routes_of]
    done, units = (sum(line[key] for line in parts) for key in ("done", "units"))
    if not done or not (is_there or lines[item.name]["units"]):
        return f"{reason}; needs the routes of {' and '.join(item.routes_of)}" if item.routes_of else reason
    return "done" if done == units else f"{done} of {units} units; {reason}"


def make_rows_without_models() -> list[dict[str, Any]]:
    """What the paper's printed figures and routes alone allow to check."""
    significance, stream = read_record("study_significance.json"), read_record("paper_stream_verbatim.json")
    selection, controls = read_record("paper_selection.json"), stream["config"]["verbatim_controls"]
    without_loss = [row["without_loss"] for row in selection["results"] if row["disagreement"] >= DISAGREEMENT]
    return [
        {
            "item": "significance",
            "shows": "Statistical significance, from the printed main table",
            "command": f"`{significance['command'].partition(' --baseline')[0]} …`",
            "hours": 0,
            "paper": "all six models, p ≤ 0.002",
            "ours": significance["config"]["headline"],
            "status": "done; same means, W/T/L and p as printed; intervals are resampled and differ slightly",
        },
        {
            "item": "draws",
            "shows": "Best discovered routes, from the seeds",
            "command": f"`{stream['command']}`",
            "hours": 0,
            "paper": "54 published routes that are not the standard pass and have no coefficients",
            "ours": (
                f"{stream['n']} programs are among the first draws; of {controls['n']} triples of random seeds none"
                f" draws more than {controls['all']['most']}"
            ),
            "status": "done for the first round; later rounds need the authors' answers",
        },
        {
            "item": "selection",
            "shows": "Main table, wins and losses",
            "command": f"`{selection['command']}`",
            "hours": 0,
            "paper": "{wins} wins, {ties} ties, {losses} losses".format(**selection["config"]["published"]),
            "ours": (
                f"{max(without_loss)} of {selection['results'][0]['n']:,} simulations have no loss, if a route and the"
                f" standard pass disagree on {DISAGREEMENT} % of the examples or more"
            ),
            "status": "done",
        },
    ]


def main() -> None:
    """Gather, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    rows = [*make_rows_without_models(), *make_rows(PAPER, arguments.runs, NO_MODELS)]
    available = make_available_rows(arguments.kept)
    for row in [*rows, *available]:
        print(row)
    if arguments.write:
        common: dict[str, Any] = {"command": "python -m experiments.reproducing_paper", "seed": "1, 2, 42"}
        total = sum(row["hours"] for row in rows)
        write_record(arguments.write, columns=COLUMNS, results=rows, config={"hours": total}, **common)
        columns = {name: title for name, title in COLUMNS.items() if name not in {"paper", "command"}}
        total = sum(row["hours"] for row in available)
        other = arguments.write.with_name(f"{arguments.write.stem}_available.json")
        write_record(other, columns=columns, results=available, config={"hours": total}, **common)


if __name__ == "__main__":
    main()
