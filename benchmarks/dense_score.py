"""Whether the probability of the right choice tells good routes from bad ones sooner than right or wrong does.

    python -m benchmarks.dense_score MODEL --task sciq [--task …] [--routes 150] [--examples 400] [--data-dir FOLDER]
        [--share 0.1] [--keep FILE] [--write docs/data/dense_score.json]

Some single edits and blocks are scored on training examples, by both scores. Then, many times: a few of the examples
are what a search has seen, and each score chooses a route; how much that route gains on all other examples is what the
score is worth. Values are kept in FILE (JSON lines), so that the table can be made again without the model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write_record

SEED = 0
SEEN = (16, 48, 145)
"""Examples a search has seen: few, as in a round of the guided search, some, and a round of the paper's."""
TIMES = 400
_AT_ONCE = 50
COLUMNS = {
    "task": "task",
    "seen": "examples seen",
    "agreement": "rank correlation with the gain on the others: right or wrong",
    "dense_agreement": "probability",
    "gain": "gain of the route chosen, points: right or wrong",
    "dense_gain": "probability, points",
    "difference": "probability minus right or wrong (± over divisions)",
    "best": "best route, points",
    "n": "routes × examples",
}


def measure(frozen: Any, task_name: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A route a line: which examples it gets right, and the log-probability of the right choice among all."""
    from experiments.landscape import routes_to_record
    from macro_routing.engine.shared_likelihood import choice_log_likelihoods_of_routes
    from macro_routing.evaluation.answering import choice_items
    from macro_routing.evaluation.answering import judged as judged_by_likelihood
    from macro_routing.evaluation.decoding import Decoding
    from macro_routing.routes import Route, RouteSpace
    from macro_routing.tasks import load_task, make_splits
    from macro_routing.tasks.prompts import LIKELIHOOD

    task = load_task(task_name, data_dir=arguments.data_dir, seed=SEED)
    examples = make_splits(task, seed=SEED, training=1000, validation=100).train[: arguments.examples]
    items = choice_items(frozen, task, examples, by_letter=False)
    others = [one for one in routes_to_record(RouteSpace(frozen.layers), 0, SEED) if not one.is_standard]
    places = np.random.default_rng(SEED).permutation(len(others))[: arguments.routes]
    routes = [Route.standard(frozen.layers), *(others[place] for place in sorted(places))]
    for first in range(0, len(routes), _AT_ONCE):
        some = routes[first : first + _AT_ONCE]
        for route, rows in choice_log_likelihoods_of_routes(frozen.model, some, items).items():
            dense = [round(log_probability(example, row), 4) for example, row in zip(examples, rows, strict=True)]
            right = "".join(str(int(one.correct)) for one in judged_by_likelihood(examples, rows, Decoding(LIKELIHOOD)))
            named = {"model": Path(arguments.model).name, "task": task_name, "layers": frozen.layers}
            yield {**named, "route": str(route), "right": right, "dense": dense}


def per_byte(example: Any, row: Sequence[float]) -> NDArray[np.float64]:
    """What choices are judged by."""
    return np.array(row) / [len(choice.encode()) for choice in example.choices]


def log_probability(example: Any, row: Sequence[float]) -> float:
    """Of the right choice, were one drawn in proportion to the likelihoods per byte."""
    values = per_byte(example, row)
    if not np.isfinite(values).all():
        return float(-np.log(len(values)))  # no opinion
    values -= values.max()
    return float(values[example.right_choice] - np.log(np.exp(values).sum()))


def lines(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line per task and number of examples seen; the first route of a task is the standard pass."""
    found = []
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        right = np.array([[digit == "1" for digit in row["right"]] for row in mine], dtype=float)
        dense = np.array([row["dense"] for row in mine])
        enough = [seen for seen in SEEN if 2 * seen <= right.shape[1]]
        found += [{"task": task, "seen": seen, **judged(right, dense, seen)} for seen in enough]
    return found


def judged(right: NDArray[np.float64], dense: NDArray[np.float64], seen: int) -> dict[str, Any]:
    """What each score's choice gains on the examples that it has not seen, over many divisions of the examples."""
    from scipy.stats import spearmanr  # type: ignore[import-untyped]

    rng = np.random.default_rng(SEED)
    gains, agreements, best = [], [], []
    for _ in range(TIMES):
        order = rng.permutation(right.shape[1])
        use, rest = order[:seen], order[seen:]
        truth = right[1:, rest].mean(1) - right[0, rest].mean()
        # Pairs with the standard pass change nothing within one division: it is the same for all routes.
        scores = [table[1:, use].mean(1) for table in (right, dense)]
        # The first of equal scores would be the same edit every time.
        chosen = [int(rng.choice(np.flatnonzero(score == score.max()))) for score in scores]
        gains.append([truth[place] for place in chosen])
        agreements.append([spearmanr(score, truth).statistic for score in scores])
        best.append(truth.max())
    (plain, probability), (rank, dense_rank) = np.mean(gains, axis=0), np.mean(agreements, axis=0)
    spread = np.subtract(*np.transpose(gains)).std(ddof=1)
    return {
        "agreement": float(rank),
        "dense_agreement": float(dense_rank),
        "gain": 100 * float(plain),
        "dense_gain": 100 * float(probability),
        "difference": f"{100 * (probability - plain):+.2f} ± {100 * spread:.1f}",
        "best": 100 * float(np.mean(best)),
        "n": f"{len(right) - 1} × {right.shape[1]}",
    }


def main() -> None:
    """Measure what is not kept, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--task", required=True, action="append")
    parser.add_argument("--routes", type=int, default=150)
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--share", type=float, help="of the GPU's memory, where others run beside")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    kept = arguments.keep
    rows = [json.loads(one) for one in kept.read_text(encoding="utf-8").splitlines()] if kept and kept.is_file() else []
    missing = [name for name in arguments.task if name not in {row["task"] for row in rows}]
    device = "cpu"
    if missing:
        from benchmarks.peers import take_share
        from macro_routing.models import load_model

        take_share(arguments.share)
        frozen = load_model(arguments.model)
        device = frozen.model.device.type
        for name in missing:
            new = list(measure(frozen, name, arguments))
            rows += new
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in new)
    found = lines([row for row in rows if row["task"] in arguments.task])
    for line in found:
        print(line)
    if arguments.write:
        tasks = " ".join(f"--task {name}" for name in arguments.task)
        command = f"python -m benchmarks.dense_score {Path(arguments.model).name} {tasks}"
        config = {"model": Path(arguments.model).name, "divisions": TIMES}
        write_record(
            arguments.write,
            command=f"{command} --routes {arguments.routes} --examples {arguments.examples}",
            config=config,
            seed=SEED,
            columns=COLUMNS,
            results=found,
            device=device,
        )


if __name__ == "__main__":
    main()
