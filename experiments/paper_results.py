"""Real results: preset `paper` on one model, over tasks, ways to answer and seeds, in parts that can be resumed.

    python -m experiments.paper_results MODEL --runs FOLDER [--data-dir FOLDER] [--minutes 20]     run what is missing
    python -m experiments.paper_results --runs FOLDER [--write docs/data/results.json]             collect what is there

Every search is a run's folder under FOLDER; one that was stopped is resumed, one that is finished is left alone. No
search begins after the minutes are over, and none is shortened for them: one that is interrupted goes on the next time.
Results that the file to be written holds already are kept; what was not run is listed as such.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from macro_routing.runs.folder import use_current_names

CASES = (
    ("counting", "direct"),
    ("svamp", "direct"),
    ("gsm8k", "direct"),
    ("arc_easy", "likelihood"),
    ("sciq", "likelihood"),
    ("svamp", "reasoning"),
    ("gsm8k", "reasoning"),
    ("counting", "reasoning"),
)
SEEDS = (1, 2, 42)
COLUMNS = {
    "task": "task",
    "mode": "answers",
    "seed": "seed",
    "standard": "standard (%)",
    "macro": "MACRO (%)",
    "constant": "majority-answer baseline (%)",
    "difference": "difference, points (95 % interval)",
    "p": "p",
    "n": "n",
    "truncated": "truncated, standard / MACRO (%)",
    "rounds": "rounds",
    "minutes": "minutes",
    "route": "route",
}


def list_runs() -> Iterator[tuple[str, str, int]]:
    """All that is to be run: cheap ways to answer first for all seeds, then the reasoning, seed by seed."""
    cheap = [case for case in CASES if case[1] != "reasoning"]
    for seed in SEEDS:
        for task, mode in cheap:
            yield task, mode, seed
    for seed in SEEDS:
        for task, mode in (case for case in CASES if case not in cheap):
            yield task, mode, seed


def run_folder(runs: Path, cell: tuple[str, str, int]) -> Path:
    """Where a cell's run is kept."""
    return runs / "-".join(map(str, cell))


def run_missing(model: str, runs: Path, data_dir: Path | None, minutes: float) -> None:
    """Search cell by cell while there is time; the model is loaded once."""
    from macro_routing.models import load_model
    from macro_routing.runs import make_run_config, resume_run, run_search

    end = time.monotonic() + 60 * minutes
    frozen = load_model(model)
    for task, mode, seed in list_runs():
        folder = run_folder(runs, (task, mode, seed))
        if (folder / "result.json").exists():
            continue
        if time.monotonic() > end:
            return
        store = runs / "scores.sqlite"
        if (folder / "run.json").is_file():
            result = resume_run(folder, frozen=frozen, store=store)
        else:
            data = {"data_dir": str(data_dir)} if data_dir else {}
            config = make_run_config(task, model, "paper", seed=seed, data=data, decoding={"mode": mode})
            result = run_search(config, folder, frozen=frozen, store=store)
        print(f"{task}, {mode}, seed {seed}: {result.verdict}", flush=True)


def make_row(runs: Path, cell: tuple[str, str, int]) -> dict[str, Any]:
    """A cell's line in the table."""
    task, mode, seed = cell
    folder = run_folder(runs, cell)
    known: dict[str, Any] = {"task": task, "mode": mode, "seed": str(seed)}
    if not (folder / "result.json").exists():
        return {**known, "route": "not run"}
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    arms = {one["name"]: use_current_names(one) for one in result["variants"]}
    chosen, standard, found = arms["MACRO"], arms["standard"], result["comparison"]
    points = [100 * found[name] for name in ("low", "high")]
    return {
        **known,
        "standard": 100 * standard["correct"] / standard["n"],
        "macro": 100 * chosen["correct"] / chosen["n"],
        "constant": 100 * majority_answer_accuracy(folder),
        "difference": f"{100 * result['difference']:+.1f} ({points[0]:+.1f} to {points[1]:+.1f})",
        "p": found["p_value"],
        "n": found["n"],
        "truncated": f"{100 * standard['truncated_share']:.1f} / {100 * chosen['truncated_share']:.1f}",
        "rounds": len(list((folder / "rounds").glob("*.json"))),
        "minutes": search_minutes(folder),
        "route": f"`{chosen['route']}`",
        "raw": result,
    }


def majority_answer_accuracy(folder: Path) -> float:
    """How often the test set's commonest answer is right: what a route can reach that has only stopped erring alike."""
    examples = json.loads((folder / "answers.json").read_text(encoding="utf-8"))["examples"]
    return Counter(one["answer"] for one in examples).most_common(1)[0][1] / len(examples)


def search_minutes(folder: Path) -> float:
    """From the first line of a run's log to its last; a resumed run's pause counts, too."""
    stamps = [
        datetime.fromisoformat(line[:19])
        for line in (folder / "log.txt").read_text(encoding="utf-8").splitlines()
        if line[:4].isdigit()
    ]
    return (stamps[-1] - stamps[0]).total_seconds() / 60


def main() -> None:
    """Run, or collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--write", type=Path, default=Path("docs/data/results.json"))
    arguments = parser.parse_args()
    if arguments.model:
        arguments.runs.mkdir(parents=True, exist_ok=True)
        run_missing(arguments.model, arguments.runs, arguments.data_dir, arguments.minutes)
    before = json.loads(arguments.write.read_text(encoding="utf-8")) if arguments.write.exists() else {}
    kept = {(one["task"], one["mode"], one["seed"]): one for one in before.get("results", ()) if "n" in one}
    results = [make_row(arguments.runs, (task, mode, seed)) for task, mode, seed in list_runs()]
    results = [one if "n" in one else kept.get((one["task"], one["mode"], one["seed"]), one) for one in results]
    for one in results:
        print({name: one.get(name) for name in COLUMNS})
    headers = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(arguments.runs.glob("*/run.json"))]
    if headers:
        machine = headers[0]["environment"]
        write_record(
            arguments.write,
            command="python -m experiments.paper_results MODEL --runs FOLDER",
            config={"model": Path(headers[0]["model"]["name"]).name, "preset": "paper", "seeds": list(SEEDS)},
            seed=SEEDS[0],
            columns=COLUMNS,
            results=results,
            where=f"one {machine.get('cuda:0', machine['processor'])}; {machine['extra [models]']}",
        )


if __name__ == "__main__":
    main()
