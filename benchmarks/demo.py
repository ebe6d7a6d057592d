"""The demo as the pages show it: its record, and its pictures.

macro demo --out FOLDER
python -m benchmarks.demo FOLDER --write docs/data/demo.json --pictures docs/pictures
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from macro_routing.report import write_figures
from macro_routing.report.action_frequencies import count_expected_actions_by_layer
from macro_routing.report.policy_map import list_policy_map_rows
from macro_routing.report.run_data import load_run_for_report

COLUMNS = {
    "name": "chosen by",
    "route": "route",
    "length": "layers applied",
    "accuracy": "correct (%)",
    "correct": "correct",
    "n": "of",
}
POLICY_ROUNDS = (0, 2, 10)
PICTURES = ("rounds.svg",)


def make_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The variants on the test set, with what is said about the chosen one."""
    found = result["comparison"]
    said = {
        "difference": f"{100 * result['difference']:+.1f}",
        "interval": f"{100 * found['low']:+.1f} to {100 * found['high']:+.1f}",
        "p": f"{found['p_value']:.2g}",
        "verdict": result["verdict"],
        "fixed": found["fixed"],
        "broken": found["broken"],
    }
    return [
        {
            **one,
            "route": f"`{one['route']}`",
            "accuracy": 100 * one["correct"] / one["n"],
            **(said if number == 0 else {}),
        }
        for number, one in enumerate(result["variants"])
    ]


def make_policy_rows(run: Path) -> list[dict[str, Any]]:
    """Where the policy goes from each layer in some rounds: by row of the report's policy map, how often."""
    frames = [frame for frame in load_run_for_report(run).policies if frame.rounds in POLICY_ROUNDS]
    return [
        {"round": frame.rounds, "goes": name, "frequencies": [round(float(value), 4) for value in values]}
        for frame in frames
        for name, values in list_policy_map_rows(
            frame.policy.space, count_expected_actions_by_layer(frame.policy), frame.policy.space.radius
        )
    ]


def main() -> None:
    """Read the run, write record and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--write", type=Path, required=True)
    parser.add_argument("--pictures", type=Path, required=True)
    arguments = parser.parse_args()
    header = json.loads((arguments.run / "run.json").read_text(encoding="utf-8"))
    result = json.loads((arguments.run / "result.json").read_text(encoding="utf-8"))
    given = header["config"]["given"]
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in (arguments.run / "rounds").glob("*.json")]
    seconds = sum(report["seconds"] for report in reports)
    write_record(
        arguments.write,
        command="macro demo",
        config={name: given[name] for name in ("model", "task", "preset")},
        seed=given["seed"],
        columns=COLUMNS,
        results=make_rows(result),
        summary={"search_minutes": seconds / 60},
    )
    write_record(
        arguments.write.with_name(f"{arguments.write.stem}_policy.json"),
        command="macro demo",
        config={"columns": "by layer from the first to the last: how often a program goes there"},
        seed=given["seed"],
        columns={"round": "round", "goes": "goes", "frequencies": "frequencies"},
        results=make_policy_rows(arguments.run),
    )
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write_figures([arguments.run], Path(folder), print)
        for name in PICTURES:
            shutil.copy(Path(folder) / name, arguments.pictures / f"demo_{name}")


if __name__ == "__main__":
    main()
