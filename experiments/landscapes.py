"""Recorded landscapes: all single edits, all blocks and some routes of two edits of a real model, on training examples.

    python -m experiments.landscapes MODEL --task arc_easy [--mode likelihood] [--examples 200] [--two-edits 250]
        [--data-dir FOLDER] [--folder experiments/raw/landscapes]

Only training examples of the seed are looked at. The table is written whole when all of it is known; scores go to
the store on the way, so a command that was stopped goes on when it is given again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.record import commit, hardware

SEED = 0


def record_one(frozen: Any, arguments: argparse.Namespace) -> tuple[Path, Any]:
    """One task's landscape, written."""
    from experiments.landscape import record, routes_to_record
    from macro_routing.evaluation.decoding import DecodingSettings
    from macro_routing.evaluation.evaluator import Evaluator
    from macro_routing.evaluation.score_store import ScoreStore, default_store_path
    from macro_routing.routes import Route, RouteSpace
    from macro_routing.tasks import load_task, make_splits

    task = load_task(arguments.task, data_dir=arguments.data_dir, seed=SEED)
    examples = make_splits(task, seed=SEED, training=1000, validation=100).train[: arguments.examples]
    evaluator = Evaluator(
        frozen, task, DecodingSettings(arguments.mode), ScoreStore(arguments.store or default_store_path())
    )
    routes = routes_to_record(RouteSpace(frozen.layers), arguments.two_edits, SEED)

    def score(some: Sequence[Route]) -> Mapping[Route, Sequence[bool]]:
        return {route: found.correct for route, found in evaluator.evaluate(some, examples).items()}

    name = f"{Path(arguments.model).name.split('.gguf')[0]}-{arguments.task}-{arguments.mode}"
    about = {
        "model": Path(arguments.model).name,
        "task": arguments.task,
        "mode": arguments.mode,
        "command": f"python -m experiments.landscapes MODEL --task {arguments.task} --mode {arguments.mode}"
        f" --examples {len(examples)} --two-edits {arguments.two_edits}",
        "commit": commit(),
        "hardware": hardware(frozen.model.device.type),
        "seed": SEED,
    }
    found = record(routes, score, about)
    path = arguments.folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.to_json(), encoding="utf-8")
    return path, found


def main() -> None:
    """Record, and say what the table holds."""
    from macro_routing.models import load_model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--task", required=True, action="append", help="NAME or NAME:MODE, one or more")
    parser.add_argument("--mode", default="likelihood")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--two-edits", type=int, default=250)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("experiments/raw/landscapes"))
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    mode = arguments.mode
    for given in arguments.task:
        arguments.task, _, own = given.partition(":")
        arguments.mode = own or mode
        start = time.perf_counter()
        path, found = record_one(frozen, arguments)
        gains = sorted((found.gain(route), str(route)) for route in found.routes)
        better = sum(gain > 0 for gain, _ in gains)
        print(
            f"{path}: {len(found.routes)} routes × {found.examples} examples in {time.perf_counter() - start:.0f} s;"
            f" standard {100 * found.standard.mean():.1f} %, {better} better; best"
            f" {', '.join(f'{100 * gain:+.1f} {route}' for gain, route in gains[-3:][::-1])}",
            flush=True,
        )


if __name__ == "__main__":
    main()
