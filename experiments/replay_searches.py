"""Searches replayed on recorded landscapes (experiments/raw/landscapes): no model, real scores.

    python -m experiments.replay_searches [--seeds 40] [--folder experiments/raw/landscapes] [--budget 2000]
        [--draws 16] [--processes 2] [--write docs/data/replay.json]

Searches see half of the recorded examples of each landscape and are judged on two fifths that they never saw. The
guided search and the uniform control choose among the recorded routes; RYS's blocks are all among them.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from experiments.landscape import Landscape
from experiments.replay import ReplayResult, SearchFactory, replay_search
from macro_routing.routes.space import RouteSpace
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.rys import BlockSweep
from macro_routing.search.rys_settings import BlockSweepSettings

BUDGET_PER_EXAMPLE = 43.5
COLUMNS = {
    "landscape": "landscape",
    "search": "search",
    "gain": "gain of what it selects (points, ± over splits)",
    "proposed": "of what it proposes (points)",
    "changed": "another route selected (%)",
    "best": "best five recorded, same examples (points)",
}


def make_searches(
    landscape: Landscape, decision: DecisionSettings | None = None, **common: Any
) -> dict[str, SearchFactory]:
    """What is replayed; ``common`` are settings of the guided search."""
    space, among = RouteSpace(landscape.layers), frozenset(landscape.routes)

    def guided(**settings: Any) -> SearchFactory:
        return lambda examples, budget, seed: GuidedSearch(
            space,
            examples,
            budget,
            GuidedSettings(**common, **settings),
            seed,
            decision or DecisionSettings(),
            allowed_routes=frozenset(r for r in among if _fits_space(space, r)),
        )

    longest = space.max_length - space.layers
    rys: Callable[[int, int, int], Any] = lambda examples, budget, seed: BlockSweep(  # noqa: E731
        space.layers, examples, budget, BlockSweepSettings(max_span=longest, anchored=True), seed
    )
    return {"guided": guided(), "guided, every route alone": guided(kernel="independent"), "rys": rys}


def _fits_space(space: RouteSpace, route: Any) -> bool:
    from macro_routing.errors import MacroError

    try:
        space.check_route(route)
    except MacroError:
        return False
    return True


def describe_landscape(landscape: Landscape) -> str:
    """For a table."""
    return f"{landscape.about['task']}, {landscape.about['mode']}, {landscape.layers} layers"


def evaluation_budget(landscape: Landscape) -> int:
    """Outcomes that a search may ask for: it sees half of the examples."""
    return int(BUDGET_PER_EXAMPLE * landscape.examples / 2)


def mean_gain_of_best_five(landscape: Landscape) -> float:
    """Mean gain of the five best recorded routes, in points."""
    return 100 * float(np.sort([landscape.gain(route) for route in landscape.routes])[-5:].mean())


def write_replay_record(
    path: Path, command: str, columns: Mapping[str, str], results: Sequence[Mapping[str, Any]], **config: Any
) -> None:
    """The record of a table of replays."""
    config |= {"budget per example": BUDGET_PER_EXAMPLE, "judged on": "two fifths of the examples"}
    write_record(path, command=command, config=config, seed=0, columns=columns, results=results)


def run_one(path: Path, search: str, budget: int | None, draws: int, seed: int) -> ReplayResult:
    """One search on one landscape."""
    landscape = Landscape.load(path)
    make = make_searches(landscape, draws=draws)[search]
    return replay_search(make, landscape, budget=budget or evaluation_budget(landscape), seed=seed)


def main() -> None:
    """Replay, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--folder", type=Path, default=Path("experiments/raw/landscapes"))
    parser.add_argument("--budget", type=int, help="evaluations; by default in proportion to the examples")
    parser.add_argument("--draws", type=int, default=GuidedSettings.draws, help="routes a round, at least")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    results = []
    for path in sorted(arguments.folder.glob("*.json")):
        landscape = Landscape.load(path)
        name = f"{landscape.about['model'].split('.gguf')[0]}: {describe_landscape(landscape)}"
        for search in make_searches(landscape):
            run = partial(run_one, path, search, arguments.budget, arguments.draws)
            with ProcessPoolExecutor(arguments.processes) as pool:
                found = list(pool.map(run, range(arguments.seeds)))
            gains = 100 * np.array([one.gain for one in found])
            error = 1.96 * gains.std(ddof=1) / len(gains) ** 0.5
            results.append(
                {
                    "landscape": name,
                    "search": search,
                    "gain": f"{gains.mean():+.2f} ± {error:.2f}",
                    "proposed": 100 * float(np.mean([one.proposed for one in found])),
                    "changed": 100 * float(np.mean([not one.route.is_standard for one in found])),
                    "best": mean_gain_of_best_five(landscape),
                    "asked": float(np.mean([one.asked for one in found])),
                    "missing": float(np.mean([one.missing for one in found])),
                    "raw": [round(float(gain), 2) for gain in gains],
                }
            )
            print({key: value for key, value in results[-1].items() if key != "raw"}, flush=True)
    if arguments.write:
        command = f"python -m experiments.replay_searches --seeds {arguments.seeds}"
        command += f" --budget {arguments.budget} --draws {arguments.draws}" if arguments.budget else ""
        write_replay_record(arguments.write, command, COLUMNS, results)


if __name__ == "__main__":
    main()
