"""How a search grows with workers: real processes on this machine, the driver's own cost, and played GPUs.

    python -m benchmarks.scale --write docs/data

writes scale_cpu.json (real workers on CPU cores), scale_driver.json (a thousand workers that answer at once) and
scale_gpus.json (a round of the paper's size on 8 and 64 workers, by a played clock).
"""

import argparse
import dataclasses
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.scoring_settings import EXACT, NEVER, UnitSizes
from macro_routing.evaluation.work_items import WorkItem
from macro_routing.models import load_model
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.load_options import LoadOptions
from macro_routing.routes import Route, RouteSpace
from macro_routing.routes.mixture import to_mixture
from macro_routing.search.policy import MarkovPolicy
from macro_routing.tasks import Example, Task, load_task
from macro_routing.workers.worker_messages import WorkerSetup, WorkerTaskSource
from macro_routing.workers.worker_pool import WorkerPool, create_worker_pool
from macro_routing.workers.worker_settings import WorkerSettings
from tests.faults.simulated_backend import SimulatedBackend

SEED = 0
LAYERS = 28
"""Of the played models."""
LIKELIHOOD = DecodingSettings("likelihood")


def make_routes(layers: int, count: int) -> list[Route]:
    """Different routes as a first round draws them."""
    rng = np.random.default_rng(SEED)
    policy = MarkovPolicy.make_prior(RouteSpace(layers, max_length=layers + 12))
    found: dict[Route, None] = {}
    while len(found) < count:
        found[policy.sample_program(rng).to_route(layers)] = None
    return list(found)


# --- real workers on this machine ----------------------------------------------------------------------------------


def measure_cpu_workers(model: str, counts: Sequence[int], examples: int, routes: int) -> list[dict[str, Any]]:
    """The same evaluation by 1, 2, 4 workers of one thread each, after all of them are loaded."""
    os.environ["OMP_NUM_THREADS"] = "1"
    frozen, task = load_model(model), load_task("category", seed=SEED)
    asked, unit = make_routes(frozen.layers, routes), UnitSizes(full=8)
    setup = WorkerSetup(model, LoadOptions(), (WorkerTaskSource("category", seed=SEED),))
    rows: list[dict[str, Any]] = []
    answers = []
    for workers in counts:
        with create_worker_pool(WorkerSettings(workers=workers), setup) as pool:
            evaluator = Evaluator(frozen, task, LIKELIHOOD, None, unit, executor=pool)
            warm_up_workers(evaluator, pool, task.pools["train"])
            start = time.perf_counter()
            found = evaluator.evaluate(asked, task.pools["test"][:examples])
            seconds = time.perf_counter() - start
        answers.append({route: one.outcomes for route, one in found.items()})
        rate = routes * examples / seconds
        first = rows[0]["rate"] if rows else rate
        cores = min(workers, os.cpu_count() or 1)
        rows.append(
            {
                "workers": workers,
                "seconds": seconds,
                "rate": rate,
                "times": rate / first,
                "per_core": 100 * rate / first / cores,
                "same": answers[-1] == answers[0],
                "load": os.getloadavg()[0],
            }
        )
        print(rows[-1], flush=True)
    return rows


def warm_up_workers(evaluator: Evaluator, pool: WorkerPool, examples: Sequence[Example]) -> None:
    """Every worker has loaded its model and answered a unit: what is timed afterwards is work alone."""
    # One that is late would leave its share of these units to the others; all being idle, each is given one.
    pool.wait_until_ready()
    needed = pool.worker_count * evaluator.examples_per_unit.full
    if len(examples) < needed:
        raise ValueError(f"{needed} examples are needed to give each worker a unit, there are {len(examples)}")
    evaluator.evaluate([Route.standard(evaluator.frozen.layers)], examples[:needed])
    if missing := pool.worker_count - len(pool.counts.finished_by_slot):
        raise RuntimeError(f"{missing} of {pool.worker_count} workers have answered nothing; repeat the measurement")


# --- the driver alone ----------------------------------------------------------------------------------------------


def measure_driver_cost(frozen: FrozenModel, task: Task, counts: Sequence[int], units: int) -> list[dict[str, Any]]:
    """Units a second through driver, messages and store, when workers answer at once; and the memory it takes."""
    rows = []
    pool_of_examples = [
        dataclasses.replace(one, id=f"{copy}/{one.id}", question=f"{one.question} {copy}")
        for copy in range(1 + 8 * units // len(task.pools["train"]) // 4)
        for one in task.pools["train"]
    ]
    routes = make_routes(frozen.layers, 4)
    for workers in counts:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with tempfile.TemporaryDirectory() as folder:
            store = ScoreStore(Path(folder) / "s.sqlite")
            backend = SimulatedBackend()
            with WorkerPool(backend, WorkerSettings(workers=workers)) as pool:
                evaluator = Evaluator(frozen, task, LIKELIHOOD, store, UnitSizes(full=8), executor=pool)
                done, start = 0, time.perf_counter()
                for route in routes:  # a route at a time, so that an ask is a route on a unit
                    evaluator.evaluate([route], pool_of_examples[: 2 * units])
                    done += 2 * units // 8
                seconds = time.perf_counter() - start - backend.simulation_seconds
            store.close()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        rows.append(
            {
                "workers": workers,
                "units": done,
                "rate": done / seconds,
                "milliseconds": 1000 * seconds / done,
                "megabytes": grown / 1024,
            }
        )
        print(rows[-1], flush=True)
    return rows


# --- played GPUs ---------------------------------------------------------------------------------------------------


def _count_layers(ask: WorkItem) -> int:
    """Layer applications of an ask: beginnings that its routes share are run once."""
    routes = [route for asked in ask.routes for route in to_mixture(asked).routes]
    return len({route.steps[:length] for route in routes for length in range(1, route.length + 1)})


def simulate_gpus(frozen: FrozenModel, task: Task, counts: Sequence[int], sizes: UnitSizes) -> list[dict[str, Any]]:
    """A round of 30 draws on 100 examples, by racing and to the end; the standard pass on an example takes a second."""
    draws = make_routes(LAYERS, 30)
    examples = task.pools["train"][:100]
    rows: list[dict[str, Any]] = []
    for mode in (NEVER, EXACT):
        for workers in counts:
            backend = SimulatedBackend(lambda ask: len(ask.unit) * _count_layers(ask) / LAYERS)
            with WorkerPool(backend, WorkerSettings(workers=workers, worker_timeout=1e6)) as pool:
                evaluator = Evaluator(frozen, task, LIKELIHOOD, None, sizes, executor=pool)
                raced = evaluator.race_draws(draws, examples, 5, mode)
            alone = backend.clock if workers == 1 else rows[-1]["alone"]
            rows.append(
                {
                    "mode": "to the end" if mode == NEVER else "racing",
                    "workers": workers,
                    "seconds": backend.clock,
                    "alone": alone,
                    "times": alone / backend.clock,
                    "efficiency": 100 * alone / backend.clock / workers,
                    "needed": raced.computed_evaluations,
                    "work": backend.busy,
                    "unit": f"{sizes.race} and {sizes.race_late}",
                }
            )
            print(rows[-1], flush=True)
    return rows


CPU_COLUMNS = {
    "workers": "workers",
    "seconds": "seconds",
    "rate": "evaluations a second",
    "times": "times one worker",
    "per_core": "% of linear, by cores in use",
    "same": "the same outcomes",
    "load": "load of the machine",
}
DRIVER_COLUMNS = {
    "workers": "workers",
    "units": "units",
    "rate": "units a second",
    "milliseconds": "ms a unit",
    "megabytes": "MB more than the row above",
}
GPU_COLUMNS = {
    "mode": "round",
    "unit": "examples per unit",
    "workers": "workers",
    "seconds": "simulated seconds",
    "times": "times one worker",
    "efficiency": "% of linear",
    "needed": "evaluations needed",
    "work": "seconds of all workers",
}


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="folder of the three records")
    parser.add_argument("--only", choices=("cpu", "driver", "gpus"))
    parser.add_argument("--model", default="smollm2-135m")
    arguments = parser.parse_args()
    from tests.runs.small import small_frozen, small_task

    frozen, task = small_frozen(), small_task()
    parts: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
        "cpu": (
            lambda: measure_cpu_workers(arguments.model, (1, 2, 4), 64, 6),
            CPU_COLUMNS,
            {"model": arguments.model, "task": "category", "routes": 6, "examples": 64, "unit": 8},
        ),
        "driver": (
            lambda: measure_driver_cost(frozen, task, (1, 10, 100, 1000), 4000),
            DRIVER_COLUMNS,
            {"examples per unit": 8},
        ),
        "gpus": (
            lambda: [
                row
                for sizes in (UnitSizes(race=80, race_late=80), UnitSizes(race=10, race_late=10))
                for row in simulate_gpus(frozen, task, (1, 8, 64), sizes)
            ],
            GPU_COLUMNS,
            {"draws": 30, "examples": 100, "elite": 5, "seconds of a standard pass on an example": 1},
        ),
    }
    for name, (measure, columns, config) in parts.items():
        if arguments.only not in (None, name):
            continue
        results = measure()
        if arguments.write:
            write_record(
                arguments.write / f"scale_{name}.json",
                command=f"python -m benchmarks.scale --only {name} --write docs/data",
                config=config,
                seed=SEED,
                columns=columns,
                results=results,
            )


if __name__ == "__main__":
    main()
