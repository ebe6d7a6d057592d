"""``macro evaluate``: a route against the standard pass on a task, with an interval and a p-value."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json
from macro_routing.cli.run_options import (
    DATA_PANEL,
    DECODING,
    EXECUTION,
    EXECUTION_PANEL,
    LOADING,
    JsonOption,
    Shown,
    StoreOption,
    Tables,
    make_load_options,
    make_worker_settings,
    with_run_options,
)
from macro_routing.engine.decoders import AUTO
from macro_routing.models.catalog import DEFAULT_MODEL
from macro_routing.runs.config import DataSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.outcomes import RouteEvaluation
    from macro_routing.evaluation.statistics import PairedComparison
    from macro_routing.routes.route_file import RouteFile
    from macro_routing.tasks.task import Example, Task


class Split(StrEnum):
    """Parts of a task's data."""

    train = "train"
    validation = "validation"
    test = "test"


@with_run_options(
    *("task", "model", "seed", *DECODING, "decoder", "data_dir", "question", "answer", "choices", "kind"),
    *(*LOADING, *EXECUTION),
    task=Shown(required=True),
    seed=Shown(help="Seed of the splits, and of synthetic tasks.", default="that of the route's search, else 0"),
    mode=Shown(default="as in the route's file, else auto"),
    reasoning_budget=Shown(default="as in the route's file, else 400"),
    answer_budget=Shown(default="as in the route's file, else 128"),
    kind=Shown(help="Kind of the answers: number, choice, math or text; choice where --choices is given."),
)
def evaluate(
    flags: Tables,
    route: Annotated[str, typer.Option(help="The route, in any notation, or a file that holds one.")],
    split: Annotated[Split, typer.Option(help="Which examples.", rich_help_panel=DATA_PANEL)] = Split.test,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Use only the first N examples of the split.", rich_help_panel=DATA_PANEL),
    ] = None,
    store: StoreOption = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Neither look up nor keep scores.", rich_help_panel=EXECUTION_PANEL)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Score a route and the standard pass on the same examples, and say whether the difference is real.

    Example: `macro evaluate --task category --mode likelihood --route 'L0-L17 L17 RJ' --limit 200`
    """
    options.require_models_extra()
    options.quiet_libraries()
    from macro_routing.cli.stopping import stop_with_hint
    from macro_routing.evaluation.evaluator import Evaluator
    from macro_routing.evaluation.score_store import ScoreStore, default_store_path
    from macro_routing.evaluation.statistics import compare_paired
    from macro_routing.models.frozen import load_model
    from macro_routing.routes.route import Route
    from macro_routing.tasks.benchmarks import list_contaminating_tasks
    from macro_routing.tasks.catalog import load_task
    from macro_routing.tasks.splits import make_splits
    from macro_routing.workers.worker_messages import TaskSource, WorkerSetup
    from macro_routing.workers.worker_pool import create_worker_pool
    from macro_routing.workers.worker_settings import WorkerError

    workers, loading = make_worker_settings(flags), make_load_options(flags)
    known_of = options.read_route_file(route)
    searched_with = _read_search_seed(known_of)
    top_level, data = flags[""], DataSettings(**flags.get("data", {}))
    task, model = top_level["task"], top_level.get("model", DEFAULT_MODEL)
    seed = top_level.get("seed", searched_with or 0)
    columns: dict[str, Any] = {name: getattr(data, name) for name in ("question", "answer", "choices", "kind")}
    data_dir = Path(data.data_dir) if data.data_dir else None
    chosen = load_task(task, data_dir, seed, **columns)
    decoding = _resolve_decoding(known_of, chosen, flags.get("decoding", {}))
    examples = make_splits(chosen, seed=seed).get_split(split.value)[:limit]
    if known_of and known_of.task == chosen.name and searched_with not in {None, seed}:
        _warn_of_overlap(examples, load_task(task, data_dir, searched_with, **columns), searched_with)
    source = TaskSource(task, data.data_dir, seed, **columns)
    kept = "nothing was kept" if no_store else "what was scored is kept, the same command goes on from there"
    with (
        stop_with_hint(kept),
        nullcontext()
        if workers.runs_in_process
        else create_worker_pool(workers, WorkerSetup(model, loading, (source,)), options.report_progress) as pool,
    ):
        frozen = (pool.load_driver_model if pool else load_model)(model, loading, options.report_progress)
        parsed = options.read_route(route, frozen)
        known = None if no_store else ScoreStore(store or default_store_path())
        standard = Route.standard(frozen.layers)
        evaluator = Evaluator(frozen, chosen, decoding, known, decoder=top_level.get("decoder", AUTO), executor=pool)
        if shared := list_contaminating_tasks(chosen.name):
            options.report_progress(
                f"warning: {chosen.name} shares questions with {', '.join(shared)};"
                " a route that was searched on those cannot be judged here"
            )
        options.report_progress(
            f"{len(examples)} {split.value} examples of {chosen.name}, {decoding.mode}, seed {seed}"
        )
        scores = evaluator.evaluate([standard, parsed], examples)
    if reason := scores[parsed].failure:
        raise WorkerError(
            f"the route {parsed} cannot be run: it {reason}; the same with --workers 0 shows what happens to it"
        )
    comparison = compare_paired(scores[standard].correct, scores[parsed].correct, seed=seed)
    if as_json:
        facts = {"task": chosen.name, "split": split.value, "seed": seed, "scope": evaluator.scope}
        arms = {"standard": _evaluation_to_json(scores[standard]), "route": _evaluation_to_json(scores[parsed])}
        print_json(
            {**facts, **arms, "comparison": {**dataclasses.asdict(comparison), "difference": comparison.difference}}
        )
        return
    _print_comparison(comparison, scores[standard], scores[parsed])


def _read_search_seed(found: RouteFile | None) -> int | None:
    seed = found.found_by.get("seed") if found else None
    return seed if isinstance(seed, int) and seed >= 0 else None


def _resolve_decoding(found: RouteFile | None, task: Task, given: dict[str, Any]) -> DecodingSettings:
    """Flags override what the route was found with; another way to answer has its own budgets."""
    from macro_routing.evaluation.decoding_settings import DecodingSettings, default_answer_mode

    known = dict(found.decoding) if found and found.task == task.name and "mode" not in given else {}
    fields = {field.name for field in dataclasses.fields(DecodingSettings)}
    values = {name: value for name, value in {**known, **given}.items() if name in fields and value != AUTO}
    return DecodingSettings(**{"mode": default_answer_mode(task), **values})


def _warn_of_overlap(examples: Sequence[Example], task: Task, seed: int) -> None:
    """Examples that a route was searched on say nothing about it; another seed divides them otherwise."""
    from macro_routing.tasks.splits import make_splits

    before = make_splits(task, seed=seed)
    met = {one.key for one in (*before.train, *before.validation)}
    if count := sum(one.key in met for one in examples):
        options.report_progress(
            f"warning: the route was searched with seed {seed}, and {count} of these {len(examples)} examples may have"
            f" been among those that it was searched or chosen on; --seed {seed} has its test examples"
        )


def _evaluation_to_json(evaluated: RouteEvaluation) -> dict[str, Any]:
    return {
        "route": str(evaluated.route),
        "length": evaluated.route.length,
        "correct": sum(evaluated.correct),
        "n": len(evaluated.correct),
        "cut_off": evaluated.truncated_share,
        "tokens": evaluated.mean_tokens,
        "from_store": evaluated.from_store,
    }


def _print_comparison(comparison: PairedComparison, standard: RouteEvaluation, routed: RouteEvaluation) -> None:
    rows = []
    for name, arm in (("standard", standard), ("route", routed)):
        accuracy = f"{sum(arm.correct)} of {comparison.n} right, {100 * sum(arm.correct) / comparison.n:.1f} %"
        cost = (
            f"cut off {100 * arm.truncated_share:.1f} %, {arm.mean_tokens:.1f} tokens, {arm.from_store} from the store"
        )
        rows.append((name, f"{accuracy}; {cost}"))
    rows += [
        ("difference", f"{100 * comparison.difference:+.1f} points, 95 % interval {_format_interval(comparison)}"),
        ("p-value", f"{comparison.p_value:.3g} (exact McNemar; {comparison.fixed} fixed, {comparison.broken} broken)"),
    ]
    print_fields(rows)


def _format_interval(comparison: PairedComparison) -> str:
    return f"{100 * comparison.low:+.1f} to {100 * comparison.high:+.1f}"
