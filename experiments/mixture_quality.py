"""Mixtures on real models against single routes and the controls of contrastive decoding, choices by likelihood.

    python -m experiments.mixture_quality MODEL --runs FOLDER [--amateur SMALLER_MODEL] [--data-dir FOLDER]
        [--minutes 20] [--only sciq] [--seeds 1,2] [--share 0.1] [--kept FILE]
    python -m experiments.mixture_quality [--max-cost 3] [--write docs/data/mixture_quality.json]

The first runs what is missing and keeps a line a search; the second makes the tables of what is kept. Tasks, seeds,
budget and ``--max-cost`` are those of docs/results/search_protocol.md; searches of the first round, with
``--max-cost 2``, are never mixed with those of the second. Controls learn from the same training examples
as the mixture, and the best of them is the one with the highest training accuracy.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.record import ROOT
from experiments.kept_searches import (
    Job,
    Line,
    describe_search,
    format_difference,
    print_rows,
    read_correct,
    read_kept,
    run_missing,
    write_kept_record,
)
from experiments.method_comparison import BUDGET, SEEDS, is_selected, make_parser
from macro_routing.errors import RunError
from macro_routing.evaluation.mixture_weights import fit_mixture_of_all
from macro_routing.evaluation.statistics import holm_correction
from macro_routing.routes.mixture import Mixture, RouteOrMixture, parse_mixture
from macro_routing.search.method_names import CONTRASTIVE, DOLA, PMI, READOUTS, ROUTE_AVERAGE, SKIP_LAYER_CD

KEPT = ROOT / "experiments" / "raw" / "mixture_quality.jsonl"
TASKS = ("sciq", "arc_easy", "openbookqa", "medqa", "mmlu_pro")
MAX_COST, FIRST_MAX_COST = 3.0, 2.0
"""Of the second round, and of the first one, whose lines do not say it."""
STANDARD, SINGLE, RETURNED, FITTED, BEST_CONTROL = "standard", "single", "returned", "fitted", "best control"
CONTROLS = {
    "PMI": PMI,
    "DoLa, static": DOLA,
    "SkipLayerCD": SKIP_LAYER_CD,
    "average": ROUTE_AVERAGE,
    "read-outs": READOUTS,
    "smaller model": CONTRASTIVE,
}
"""The methods of ``macro compare``, by column."""
PMI_AND_MIXTURE = "PMI and mixture"
COLUMNS = {
    "setting": "model, task",
    STANDARD: "standard (%)",
    SINGLE: "best single route",
    RETURNED: "returned",
    FITTED: "mixture before the decision",
    BEST_CONTROL: "best control",
    **{name: name for name in CONTROLS},
    PMI_AND_MIXTURE: "PMI and mixture",
    "layers": "layers applied, × the model's",
    "seeds": "seeds",
}
SUMMARY = {
    "compared": "compared",
    "mean": "mean difference, points",
    "low": "95 % interval, from",
    "high": "to",
    "p": "p",
    "p_holm": "p (Holm)",
    "settings": "model × task",
}
COMPARED = (
    (RETURNED, STANDARD),
    (RETURNED, SINGLE),
    (RETURNED, BEST_CONTROL),
    (FITTED, STANDARD),
    (FITTED, BEST_CONTROL),
    (PMI_AND_MIXTURE, "PMI"),
)


def list_missing(arguments: argparse.Namespace, frozen: Any) -> Iterator[Job]:
    """Searches that are not kept yet."""
    name = Path(frozen.name).name
    kept = read_round(arguments.kept, arguments.max_cost)
    done = {(line["model"], line["task"], line["seed"]) for line in kept}
    tasks = arguments.only.split(",") if arguments.only else TASKS
    for seed in SEEDS:
        for task in tasks:
            if (name, task, seed) not in done and is_selected(arguments, RETURNED, seed):
                yield f"{name}, {task}, seed {seed}", partial(run_setting, arguments, task, seed, frozen)


def run_setting(arguments: argparse.Namespace, task: str, seed: int, frozen: Any) -> Line:
    """One search, then everything it is compared with on the same training and test examples."""
    from macro_routing.runs import make_run_config
    from macro_routing.runs.prepare import prepare_run

    config = make_run_config(
        task,
        arguments.model,
        method="guided",
        seed=seed,
        budget=arguments.budget,
        data={"data_dir": str(arguments.data_dir)} if arguments.data_dir else {},
        decoding={"mode": "likelihood"},
        decision={"max_cost": arguments.max_cost},
    )
    name = f"{Path(frozen.name).name}-{Path(task).stem}-{seed}-cost-{arguments.max_cost:g}"
    folder = arguments.runs / name
    store = arguments.runs / f"{name}.sqlite"
    start = time.perf_counter()
    result = run_or_resume(config, folder, frozen, store)
    seconds = time.perf_counter() - start
    run: Any = prepare_run(config, frozen=frozen, store=store)
    with closing(run.score_store):
        routes = {RETURNED: result.best_route, **find_other_routes(run, folder)}
        tested = run.evaluator.evaluate(routes.values(), run.splits.test)
    controls = dict(run_controls(config, folder, frozen, store, arguments.amateur))
    best = max(controls, key=lambda name: controls[name].training_accuracy)
    correct = {name: tested[route].correct for name, route in routes.items()}
    correct |= {name: control.correct for name, control in controls.items()}
    return {
        "task": task,
        "seed": seed,
        "max_cost": arguments.max_cost,
        "budget": arguments.budget,
        "seconds": seconds,
        "routes": {**{name: str(route) for name, route in routes.items()}, BEST_CONTROL: best},
        "lengths": {RETURNED: result.best_route.length, FITTED: routes[FITTED].length},
        **describe_search(frozen, folder, result, run.splits.test, {**correct, BEST_CONTROL: correct[best]}),
    }


def run_or_resume(config: Any, folder: Path, frozen: Any, store: Path) -> Any:
    """The result of a search; one that was interrupted goes on. A folder with another configuration is refused."""
    from macro_routing.runs.folder import RUN, RunFolder
    from macro_routing.runs.prepare import resume_run, run_search

    if (folder / RUN).is_file():
        begun_with = RunFolder.open(folder).read_json(RUN)["config"]["given"]
        if begun_with != json.loads(json.dumps(config.to_toml_tables())):
            raise RunError(f"{folder} is a run with other settings; move it away")
        return resume_run(folder, frozen=frozen, store=store)
    return run_search(config, folder, frozen=frozen, store=store)


def find_other_routes(run: Any, folder: Path) -> dict[str, RouteOrMixture]:
    """The standard pass, and what else the search's training scores say: nothing of it was confirmed."""
    from macro_routing.runs.folder import CANDIDATES, RunFolder

    layers = run.evaluator.frozen.layers
    train = [run.splits.train[index] for index in run.searcher.searched_examples]
    members = run.searcher.list_member_candidates(RunFolder.open(folder).load_last_state())
    trained = run.evaluator.evaluate(members, train)
    texts = [line["route"] for line in RunFolder.open(folder).read_json(CANDIDATES)["candidates"]]
    # The standard pass, if there is no mixture.
    fitted = max((parse_mixture(text, layers) for text in texts), key=lambda mixture: len(mixture.members))
    alone = Mixture.from_route(members[0], with_question=False)
    sources = [Mixture.from_route(member.route, with_question=member.with_question) for member in fitted.members]
    with_pmi = run.evaluator.evaluate([*sources, alone], train)
    return {
        STANDARD: members[0],
        SINGLE: max(members, key=lambda route: sum(trained[route].correct)),
        FITTED: fitted,
        PMI_AND_MIXTURE: fit_mixture_of_all(with_pmi, run.label_choices(train)) or members[0],
    }


class TestedControl(NamedTuple):
    """A control's answers, and what the best one is chosen by."""

    correct: list[bool]
    """By test example."""
    training_accuracy: float


def run_controls(
    config: Any, folder: Path, frozen: Any, store: Path, amateur: str | None
) -> Iterator[tuple[str, TestedControl]]:
    """Every control as a run of its own; the smaller model only where there is one."""
    from macro_routing.runs.comparison_results import read_method_run
    from macro_routing.runs.methods import METHODS

    for name, method in CONTROLS.items():
        if method == CONTRASTIVE and not amateur:
            continue
        search = {"amateur": str(amateur)} if method == CONTRASTIVE else {}
        path = folder.with_name(f"{folder.name}-{method}")
        result = run_or_resume(config.with_changes(method=method, search=search), path, frozen, store)
        answers = read_method_run(method, config.seed, path, []).right[METHODS[method].title]
        assert result.training_accuracy is not None
        yield name, TestedControl([*answers.values()], result.training_accuracy)


def read_round(kept: Path, max_cost: float) -> list[Line]:
    """The kept searches of one round of the protocol."""
    return [line for line in read_kept(kept) if line.get("max_cost", FIRST_MAX_COST) == max_cost]


def group_by_setting(lines: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    """The seeds of every model and task."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        groups.setdefault((line["model"], line["task"]), []).append(line)
    return groups


def make_rows(lines: Sequence[Line]) -> list[Line]:
    """A line per model and task: accuracy of the standard pass, differences to it of the others."""
    rows = []
    for (model, task), same in sorted(group_by_setting(lines).items()):
        accuracy = np.mean([np.mean(list(read_correct(line, STANDARD).values())) for line in same])
        row: Line = {"setting": f"{model}, {task}", STANDARD: 100 * float(accuracy), "seeds": len(same)}
        for name in (SINGLE, RETURNED, FITTED, BEST_CONTROL, *CONTROLS, PMI_AND_MIXTURE):
            if name in same[0]["right"]:
                row[name] = format_difference(same, name, STANDARD)
        row["layers"] = float(np.mean([line["lengths"][RETURNED] / line["layers"] for line in same]))
        row["raw"] = {str(line["seed"]): line["routes"] for line in same}
        rows.append(row)
    return rows


def make_summary_rows(lines: Sequence[Line]) -> list[Line]:
    """Mean differences over all models and tasks."""
    from macro_routing.studies.paired_comparisons import estimate_difference_over_seeds

    groups = group_by_setting(lines).values()
    rows: list[Line] = []
    for name, other in COMPARED if groups else ():
        pairs = [[(read_correct(line, other), read_correct(line, name)) for line in same] for same in groups]
        difference = estimate_difference_over_seeds(pairs)
        points = {what: 100 * getattr(difference, what) for what in ("mean", "low", "high")}
        compared = f"{COLUMNS[name]} against {other}"
        rows.append({"compared": compared, **points, "p": difference.p_value, "settings": len(pairs)})
    corrected = holm_correction([row["p"] for row in rows])
    return [{**row, "p_holm": p} for row, p in zip(rows, corrected, strict=True)]


def main() -> None:
    """Run, or collect."""
    parser = make_parser(__doc__, "runs/mixture_quality", KEPT)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--max-cost", type=float, default=MAX_COST, help="of the round that is run or tabulated")
    parser.add_argument("--amateur", help="a smaller model with the same tokenizer, as a control")
    arguments = parser.parse_args()
    run_missing(arguments, RETURNED, list_missing)
    lines = read_round(arguments.kept, arguments.max_cost)
    rows, summary = make_rows(lines), make_summary_rows(lines)
    print_rows([*rows, *summary])
    if arguments.write and not lines:
        sys.exit(f"no search with --max-cost {arguments.max_cost:g} is kept")
    if arguments.write:
        (budget,) = {line.get("budget", BUDGET) for line in lines}
        other = arguments.write.with_name(f"{arguments.write.stem}_summary.json")
        for path, columns, table in ((arguments.write, COLUMNS, rows), (other, SUMMARY, summary)):
            write_kept_record(
                path, "experiments.mixture_quality", lines, columns, table, budget=budget, max_cost=arguments.max_cost
            )


if __name__ == "__main__":
    main()
