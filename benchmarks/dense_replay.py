"""Whether the guided search finds better routes when it is told how probable the right choice was.

    python -m benchmarks.dense_replay FILE [--seeds 24] [--write docs/data/dense_replay.json]

FILE is what ``benchmarks.dense_score --keep`` has written: routes of a real model, which examples each gets right, and
how probable it holds the right choice for. Searches are replayed on it (``experiments.replay``), told
right or wrong, the probability that goes with it, or half of each. All are confirmed and judged by right or wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.landscape import Landscape
from experiments.replay import replay
from experiments.replay_searches import best_five, budget_for, searches, write_replays
from macro_routing.routes.paper_notation import parse_program

COLUMNS = {
    "task": "task",
    "told": "what the search is told",
    "proposed": "gain of what it proposes (points)",
    "gain": "of what it selects (points)",
    "difference": "selected, minus that of right or wrong (points, ± over splits)",
    "best": "best five recorded (points)",
    "n": "routes × examples, splits",
}


def calibrated(dense: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Log-probabilities as chances to be right: how the two go together in the first row, the standard pass."""
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    fit = LogisticRegression(C=1000.0).fit(dense[0][:, None], right[0])
    return np.asarray(fit.predict_proba(dense.reshape(-1, 1))[:, 1].reshape(dense.shape))


def read(rows: Sequence[Mapping[str, Any]]) -> tuple[Landscape, NDArray[np.float64]]:
    """Who was right where, and the chances that the probabilities give."""
    routes = tuple(parse_program(row["route"]).expand(row["layers"]) for row in rows)
    right = np.array([[digit == "1" for digit in row["right"]] for row in rows])
    return Landscape(routes, right), calibrated(np.array([row["dense"] for row in rows]), right)


def lines(task: str, rows: Sequence[Mapping[str, Any]], seeds: int) -> list[dict[str, Any]]:
    """A line for everything that a search may be told."""
    landscape, chances = read(rows)
    told = {
        "right or wrong": landscape.right.astype(np.float64),
        "probability": chances,
        "half of each": (landscape.right + chances) / 2,
    }
    make, budget = searches(landscape)["guided"], budget_for(landscape)
    plain = np.zeros(seeds)
    found = list[dict[str, Any]]()
    for name, table in told.items():
        credit = dict(zip(landscape.routes, table, strict=True)).__getitem__
        some = [replay(make, landscape, budget=budget, seed=seed, credit=credit) for seed in range(seeds)]
        gains = 100 * np.array([one.gain for one in some])
        plain = gains if not found else plain
        error = 1.96 * (gains - plain).std(ddof=1) / seeds**0.5
        found.append(
            {
                "task": task,
                "told": name,
                "proposed": 100 * float(np.mean([one.proposed for one in some])),
                "gain": float(gains.mean()),
                "difference": f"{(gains - plain).mean():+.2f} ± {error:.2f}" if found else "",
                "best": best_five(landscape),
                "n": f"{len(landscape.routes) - 1} × {landscape.examples}, {seeds}",
                "raw": [round(float(gain), 2) for gain in gains],
            }
        )
        print({key: value for key, value in found[-1].items() if key != "raw"}, flush=True)
    return found


def main() -> None:
    """Replay, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.file.read_text(encoding="utf-8").splitlines()]
    results = []
    for task in dict.fromkeys(row["task"] for row in rows):
        results += lines(task, [row for row in rows if row["task"] == task], arguments.seeds)
    if arguments.write:
        command = f"python -m benchmarks.dense_replay FILE --seeds {arguments.seeds}"
        write_replays(arguments.write, command, COLUMNS, results, model=rows[0]["model"])


if __name__ == "__main__":
    main()
