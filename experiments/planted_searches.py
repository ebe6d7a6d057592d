"""Searches on the planted family of docs/results/search_protocol.md, and what each part of the guided search brings.

    python -m experiments.planted_searches [--first 1000] [--seeds 1000] [--processes 2] [--runs FILE] [--write FILE]
    python -m experiments.planted_searches --parts [--first 0] [--seeds 240] …
    python -m experiments.planted_searches --small [--first 0] [--seeds 240] …

The first compares the methods; the second takes the parts of the guided search away one by one, on tuning seeds; the
third compares methods at the budget of preset ``quick``.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from experiments.planted_family import (
    BUDGET,
    LEVELS,
    SPACE,
    TRAINING,
    VALIDATION,
    FamilyMember,
    make_problem,
)
from macro_routing.evaluation.final_decision import assess_finalists, decide_route
from macro_routing.evaluation.planted_problem import TRAIN, solve_planted
from macro_routing.evaluation.planted_problem import VALIDATION as VALIDATION_SPLIT
from macro_routing.routes.route import Route
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.search.guided import GuidedSearch
from macro_routing.search.guided_settings import GuidedSettings
from macro_routing.search.macro import MacroSearch, RestartedSearch
from macro_routing.search.policy_settings import MacroSettings, RandomSettings
from macro_routing.search.random_search import RandomSearch
from macro_routing.search.rys import BlockSweep
from macro_routing.search.rys_settings import BlockSweepSettings
from macro_routing.search.searcher import Searcher

PAPER = MacroSettings(final_set="raw")
STANDARD = Route.standard(SPACE.layers)
METHODS: dict[str, Callable[[int], Searcher]] = {
    "guided": lambda seed: GuidedSearch(SPACE, TRAINING, BUDGET, GuidedSettings(), seed),
    "paper": lambda seed: MacroSearch(SPACE, TRAINING, PAPER, seed),
    "paper, routes summed": lambda seed: MacroSearch(SPACE, TRAINING, MacroSettings(final_set="marginal"), seed),
    "paper, restarted": lambda seed: RestartedSearch(MacroSearch(SPACE, TRAINING, PAPER, seed), BUDGET),
    "random": lambda seed: RandomSearch(SPACE, TRAINING, RandomSettings(), seed),
    "rys": lambda seed: BlockSweep(SPACE.layers, TRAINING, BUDGET, BlockSweepSettings(), seed),
}
KNOWN_TARGET = "nothing to search: the target told, and confirmed on all examples"
"""What certainty costs where nothing has to be found; a search can only do better by what like routes tell."""


def make_guided(**settings: Any) -> Callable[[int], Searcher]:
    """The default search with some settings changed."""
    return lambda seed: GuidedSearch(SPACE, TRAINING, BUDGET, GuidedSettings(**settings), seed)


PARTS = {
    "guided": make_guided(),
    "without the policy's programs": make_guided(policy_samples=0),
    "without edits of the best": make_guided(incumbents=0),
    "layers add up, nothing else": make_guided(kernel="additive"),
    "like routes, nothing else": make_guided(kernel="similarity"),
    "every route alone": make_guided(kernel="independent"),
    "without routes kept for their own scores": make_guided(n_empirical_best=0),
    "twice the rounds": make_guided(iterations=20),
    "one finalist": make_guided(finalists=1),
    "confirmed on a fifth": make_guided(holdout=0.2),
}
QUICK_TRAINING, QUICK_BUDGET = 160, 2000
QUICK_MACRO = MacroSettings(
    final_set="anchored", iterations=4, draws=16, elite=4, k=4, epsilon_local=0.06, epsilon_operator=0.02
)
QUICK_METHODS = {
    "guided": lambda seed: GuidedSearch(SPACE, QUICK_TRAINING, QUICK_BUDGET, GuidedSettings(draws=16), seed),
    "guided, four rounds": lambda seed: GuidedSearch(
        SPACE, QUICK_TRAINING, QUICK_BUDGET, GuidedSettings(draws=16, iterations=4), seed
    ),
    "macro, few deviations": lambda seed: MacroSearch(SPACE, QUICK_TRAINING, QUICK_MACRO, seed),
    "rys": lambda seed: BlockSweep(SPACE.layers, QUICK_TRAINING, QUICK_BUDGET, BlockSweepSettings(), seed),
}
TABLES: dict[str, dict[str, Callable[[int], Searcher]]] = {"": METHODS, "parts": PARTS, "small": QUICK_METHODS}
COLUMNS = {
    "search": "search",
    "share": "share of the target's gain",
    "moves": "targets of one or two moves",
    **{level: level for level in LEVELS},
    "adds": "targets with adds",
    "found": "target found (%)",
    "nothing": "standard pass returned, all others worse (%)",
    "alike": "standard pass returned, all others as good (%)",
    "n": "problems",
}
PART_COLUMNS = {
    "search": "search",
    "share": "share of the target's gain",
    "against": "minus the first line, same problems",
    **{name: COLUMNS[name] for name in ("moves", *LEVELS, "found", "nothing", "alike", "n")},
}
PLANTED, NOTHING, ALIKE = "planted", "nothing", "alike"
SORTS = {PLANTED: 1, NOTHING: 2, ALIKE: 4}
"""What is asked of a seed's problem: for every seed, every second, every fourth."""


def run_search(job: tuple[str, int, str], *, table: str) -> dict[str, Any]:
    """One search on one problem."""
    name, seed, sort = job
    planted = make_problem(seed, nothing=sort == NOTHING, alike=sort == ALIKE)
    start = time.perf_counter()
    if name == KNOWN_TARGET:
        route = confirm_known_target(planted)
    else:
        searcher = TABLES[table][name](seed)
        solved = solve_planted(searcher, planted.problem, training=searcher.examples, validation=VALIDATION)
        route = solved.selected.route
    facts = {"search": name, "seed": seed, "level": planted.level, "edits": planted.edits, "kind": planted.kind}
    result = {"share": planted.share(route)} if sort == PLANTED else {"standard": route.is_standard}
    facts |= {"sort": sort, "found": route == planted.problem.target, "seconds": time.perf_counter() - start}
    return facts | result


def confirm_known_target(planted: FamilyMember) -> Route:
    """The target, if all training and validation examples show its lead as surely as the guided search wants it."""

    def verdicts(route: Route) -> Any:
        splits = ((TRAIN, TRAINING), (VALIDATION_SPLIT, VALIDATION))
        return np.concatenate(
            [planted.problem.simulate_which_examples_correct(route, split, range(count)) for split, count in splits]
        )

    settings = DecisionSettings()
    return decide_route(assess_finalists([planted.problem.target], verdicts, settings), settings) or STANDARD


def make_row(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A search's line, with an interval for its mean share."""
    planted, nothing, alike = ([run for run in runs if run["sort"] == sort] for sort in SORTS)

    def mean(runs: Sequence[dict[str, Any]], what: str = "share") -> float | None:
        return round(float(np.mean([run[what] for run in runs])), 6) if runs else None

    shares = np.array([run["share"] for run in planted])
    error = 1.96 * shares.std(ddof=1) / len(shares) ** 0.5 if len(shares) > 1 else 0.0

    def returned(runs: Sequence[dict[str, Any]]) -> float | None:
        return 100 * float(np.mean([run["standard"] for run in runs])) if runs else None

    return {
        "search": name,
        "share": f"{shares.mean():.3f} ± {error:.3f}",
        "moves": mean([run for run in planted if run["kind"] == "moves" and run["edits"] <= 2]),
        **{level: mean([run for run in planted if run["level"] == level]) for level in LEVELS},
        "adds": mean([run for run in planted if run["kind"] == "adds"]),
        "found": 100 * (mean(planted, "found") or 0.0),
        "nothing": returned(nothing),
        "alike": returned(alike),
        "n": f"{len(planted)} + {len(nothing)} + {len(alike)}",
        "seconds": mean(planted, "seconds"),
        "raw": [[run["seed"], round(run["share"], 4), int(run["found"])] for run in planted],
    }


def format_difference_with_interval(first: Sequence[Sequence[float]], runs: Sequence[dict[str, Any]]) -> str:
    """How a search differs from the one of the first line on the problems that both have."""
    before = {int(seed): share for seed, share, _ in first}
    differences = np.array([run["share"] - before[run["seed"]] for run in runs if run["sort"] == PLANTED])
    error = 1.96 * differences.std(ddof=1) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
    return f"{differences.mean():+.3f} ± {error:.3f}"


def read_runs(path: Path | None) -> dict[tuple[str, int, str], dict[str, Any]]:
    """Runs that an earlier call has kept."""
    if path is None or not path.is_file():
        return {}
    runs = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    return {(run["search"], run["seed"], run["sort"]): run for run in runs}


def merge_rows(path: Path, found: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """New lines beside those that a record has of other searches, in the order of the table; others come last."""
    new = {row["search"] for row in found}
    kept = [row for row in json.loads(path.read_text(encoding="utf-8"))["results"] if row["search"] not in new]
    order = {name: index for index, name in enumerate(names)}
    return sorted([*kept, *found], key=lambda row: order.get(row["search"], len(order)))


def _parse_names(arguments: argparse.Namespace, all_names: Sequence[str]) -> list[str]:
    """The searches that are asked for; what cannot be run is refused."""
    for option, least in (("first", 0), ("seeds", 1), ("processes", 1)):
        if getattr(arguments, option) < least:
            sys.exit(f"--{option}: {least} is the least")
    names = arguments.only.split(";") if arguments.only else list(all_names)
    if unknown := set(names) - set(all_names):
        sys.exit(f"no search of this table: {'; '.join(sorted(unknown))}; there are {'; '.join(all_names)}")
    return names


def main() -> None:
    """Run, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = parser.add_mutually_exclusive_group()
    for table in filter(None, TABLES):
        tables.add_argument(f"--{table}", dest="table", action="store_const", const=table, default="")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", help="searches by name, separated by semicolons")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, help="keeps every run, so that the command can be stopped and repeated")
    parser.add_argument("--where", help="the machine in words, where --runs come from another one")
    parser.add_argument("--commits", help="with what the runs were made, where that was not all now")
    parser.add_argument("--write", type=Path)
    parser.add_argument(
        "--add", action="store_true", help="lines of other searches stay as they are in what is written"
    )
    arguments = parser.parse_args()
    all_names = [*TABLES[arguments.table], *([] if arguments.table else [KNOWN_TARGET])]
    names = _parse_names(arguments, all_names)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    lines: list[dict[str, Any]] = []
    known = read_runs(arguments.runs)
    with ProcessPoolExecutor(arguments.processes) as pool:
        for name in names:
            sorts = {PLANTED: 1} if name == KNOWN_TARGET else SORTS
            searches = [(name, seed, sort) for sort, every in sorts.items() for seed in seeds if seed % every == 0]
            runs = [known[job] for job in searches if job in known]
            missing = [job for job in searches if job not in known]
            for run in pool.map(partial(run_search, table=arguments.table), missing, chunksize=2):
                runs.append(run)
                if arguments.runs:
                    with arguments.runs.open("a", encoding="utf-8") as kept:
                        kept.write(json.dumps(run) + "\n")
            lines.append(
                make_row(name, runs)
                | {"against": format_difference_with_interval(lines[0]["raw"], runs) if lines else None}
            )
            print({key: value for key, value in lines[-1].items() if key != "raw"}, flush=True)
    if arguments.write:
        training, budget = (QUICK_TRAINING, QUICK_BUDGET) if arguments.table == "small" else (TRAINING, BUDGET)
        config = {"layers": SPACE.layers, "training": training, "validation": VALIDATION, "budget": budget}
        option = f"--{arguments.table} " if arguments.table else ""
        command = f"python -m experiments.planted_searches {option}--first {arguments.first}"
        common: dict[str, Any] = {"command": f"{command} --seeds {arguments.seeds}", "config": config}
        common |= {"where": arguments.where, "commits": arguments.commits, "seed": arguments.first}
        results = merge_rows(arguments.write, lines, all_names) if arguments.add else lines
        columns = PART_COLUMNS if arguments.table else COLUMNS
        write_record(arguments.write, columns=columns, results=results, **common)


if __name__ == "__main__":
    main()
