"""How sure the guided search has to be before it leaves the standard pass: what each threshold costs and buys.

    python -m experiments.decision_threshold [--first 100] [--seeds 400] [--splits 60] [--processes 2]
        [--runs FILE] [--write FILE]

The threshold decides about nothing but the last choice. So every search is run once, on planted problems of tuning
seeds and on recorded landscapes, its finalists are kept as they may be chosen, and all thresholds choose among them.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT, write_record
from experiments.landscape import Landscape
from experiments.planted_family import BUDGET, TRAINING, VALIDATION, make_problem
from experiments.planted_searches import ALIKE, METHODS, NOTHING, PLANTED
from experiments.replay import replay_search
from experiments.replay_searches import describe_landscape, evaluation_budget, make_searches
from macro_routing.evaluation.planted_problem import solve_planted

THRESHOLDS = (0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 1.0)
LANDSCAPES = [
    ROOT / "experiments" / "raw" / "landscapes" / f"{name}.json"
    for name in (
        "SmolLM2-135M-Instruct.Q4_1-category-likelihood",
        "SmolLM2-135M-Instruct.Q4_1-sciq-likelihood",
        "qwen2.5-coder-1.5b-instruct-q4_k_m-arc_easy-likelihood",
        "qwen2.5-coder-1.5b-instruct-q4_k_m-counting-direct",
    )
]
"""The landscapes of the protocol's tuning; those recorded later are for other questions."""
OTHERS_EVERY, NOTHING_EVERY, ALIKE_EVERY = 4, 6, 8
"""Every problem with one or two moves is asked; of the others, and of those with nothing to find, a share."""
COLUMNS = {
    "max_error_probability": "maximum error probability",
    "few": "share of the target's gain, one or two moves",
    "others": "other targets",
    NOTHING: "standard pass returned, all others worse (%)",
    ALIKE: "standard pass returned, all others as good (%)",
}
Job = tuple[str, int]
Finalists = Sequence[tuple[float, float]]
"""In the order in which they may be chosen: certainty, and what choosing it brings."""


def list_searches(first: int, seeds: int, splits: int) -> Iterator[Job]:
    """What is searched: a sort of planted problem or a landscape, and a seed."""
    for seed in range(first, first + seeds):
        if _has_few_moves(seed) or seed % OTHERS_EVERY == 1:
            yield PLANTED, seed
        if seed % NOTHING_EVERY == 0:
            yield NOTHING, seed
        if seed % ALIKE_EVERY == 0:
            yield ALIKE, seed
    for path in LANDSCAPES:
        yield from ((path.stem, split) for split in range(splits))


def _has_few_moves(seed: int) -> bool:
    planted = make_problem(seed)
    return planted.kind == "moves" and planted.edits <= 2


def find_finalists(job: Job) -> Finalists:
    """One search to its last choice."""
    where, seed = job
    if where in (PLANTED, NOTHING, ALIKE):
        planted = make_problem(seed, nothing=where == NOTHING, alike=where == ALIKE)
        result = solve_planted(METHODS["guided"](seed), planted.problem, training=TRAINING, validation=VALIDATION)
        # With nothing to find there is no gain to have a share of.
        return [
            (sure, planted.share(candidate.route) if where == PLANTED else 0.0) for candidate, sure in result.finalists
        ]
    landscape = Landscape.load(next(path for path in LANDSCAPES if path.stem == where))
    found = replay_search(make_searches(landscape)["guided"], landscape, budget=evaluation_budget(landscape), seed=seed)
    return [(sure, 100 * gain) for sure, gain in found.finalists]


def gain_at_threshold(known: Finalists, threshold: float) -> float | None:
    """What the choice with this threshold brings; None for the standard pass."""
    return next((brought for sure, brought in known if 1 - sure <= threshold), None)


def make_row(threshold: float, runs: dict[Job, Finalists]) -> dict[str, Any]:
    """All searches with one threshold."""
    found = {job: gain_at_threshold(known, threshold) for job, known in runs.items()}

    def mean(some: Sequence[float | None]) -> str:
        gains = np.array([gain or 0.0 for gain in some])
        return f"{gains.mean():.3f} ± {1.96 * gains.std(ddof=1) / len(gains) ** 0.5:.3f} ({len(gains)})"

    planted = {seed: brought for (where, seed), brought in found.items() if where == PLANTED}
    result: dict[str, Any] = {
        "max_error_probability": threshold,
        "few": mean([brought for seed, brought in planted.items() if _has_few_moves(seed)]),
        "others": mean([brought for seed, brought in planted.items() if not _has_few_moves(seed)]),
    }
    for sort in (NOTHING, ALIKE):
        some = [brought is None for (where, _), brought in found.items() if where == sort]
        result[sort] = f"{100 * np.mean(some):.0f} ({len(some)})"
    for name in dict.fromkeys(where for where, _ in runs if where not in (PLANTED, NOTHING, ALIKE)):
        gains = [brought for (where, _), brought in found.items() if where == name]
        changed = 100 * np.mean([gain is not None for gain in gains])
        result[name] = f"{np.mean([gain or 0.0 for gain in gains]):+.2f} ({changed:.0f} %)"
    return result


def read_runs(path: Path | None) -> dict[Job, Finalists]:
    """Searches that an earlier call has kept."""
    if path is None or not path.is_file():
        return {}
    kept = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return {(line["where"], line["seed"]): [tuple(pair) for pair in line["finalists"]] for line in kept}


def main() -> None:
    """Search, choose, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=100, help="first tuning seed")
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--splits", type=int, default=60, help="of every landscape")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, help="keeps every search, so that the command can be stopped and repeated")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    wanted = list(list_searches(arguments.first, arguments.seeds, arguments.splits))
    runs = {job: known for job, known in read_runs(arguments.runs).items() if job in set(wanted)}
    missing = [job for job in wanted if job not in runs]
    with ProcessPoolExecutor(arguments.processes) as pool:
        for job, known in zip(missing, pool.map(find_finalists, missing), strict=True):
            runs[job] = known
            if arguments.runs:
                with arguments.runs.open("a", encoding="utf-8") as kept:
                    kept.write(json.dumps({"where": job[0], "seed": job[1], "finalists": known}) + "\n")
    found = [make_row(threshold, runs) for threshold in THRESHOLDS]
    for row in found:
        print(row)
    if arguments.write:
        landscapes = {path.stem: f"{describe_landscape(Landscape.load(path))}: points" for path in LANDSCAPES}
        sizes = f"--first {arguments.first} --seeds {arguments.seeds} --splits {arguments.splits}"
        write_record(
            arguments.write,
            command=f"python -m experiments.decision_threshold {sizes}",
            config={"training": TRAINING, "validation": VALIDATION, "budget": BUDGET},
            seed=arguments.first,
            columns=COLUMNS | dict(sorted(landscapes.items())),
            results=found,
        )


if __name__ == "__main__":
    main()
