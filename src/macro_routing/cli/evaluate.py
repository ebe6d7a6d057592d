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
from macro_routing.cli.search import SearchMode
from macro_routing.models.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.evaluation_results import RouteEvaluation
    from macro_routing.evaluation.statistics import PairedComparison
    from macro_routing.routes.route_file import RouteFile
    from macro_routing.tasks.task import Example, Task


class Split(StrEnum):
    """Parts of a task's data."""

    train = "train"
    validation = "validation"
    test = "test"


def evaluate(
    task: Annotated[str, typer.Option(help="A task's name (see `macro tasks`), a .toml, or a .jsonl or .csv file.")],
    route: Annotated[str, typer.Option(help="The route, in any notation, or a file that holds one.")],
    model: Annotated[str, typer.Option(help="A built-in name, a folder, a .gguf file or a hub id.")] = DEFAULT_MODEL,
    mode: Annotated[
        SearchMode | None, typer.Option(help="How the model answers.", show_default="as in the route's file, else auto")
    ] = None,
    split: Annotated[Split, typer.Option(help="Which examples.")] = Split.test,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first so many examples of the split.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the splits, and of synthetic tasks.", show_default="that of the route's search, else 0"
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the benchmarks' files; else MACRO_DATA_DIR, else the hub.")
    ] = None,
    reasoning_budget: Annotated[
        int | None, typer.Option(help="Most tokens of reasoning.", show_default="as in the route's file, else 400")
    ] = None,
    answer_budget: Annotated[
        int | None, typer.Option(help="Most tokens of the answer.", show_default="as in the route's file, else 128")
    ] = None,
    by_letter: Annotated[bool, typer.Option("--by-letter", help="Likelihood of the letters, not the texts.")] = False,
    question: Annotated[
        str, typer.Option(help="Column of the question, for a .jsonl or .csv of your own.")
    ] = "question",
    answer: Annotated[str, typer.Option(help="Column of the answer.")] = "answer",
    choices: Annotated[str, typer.Option(help="Column of the choices, or several, separated by commas.")] = "",
    kind: Annotated[
        str | None, typer.Option(help="number, choice, math or text; choice where --choices is given.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Where scores are kept.", show_default="the cache folder")] = None,
    decoder: Annotated[options.Decoder, typer.Option(help=options.DECODER_HELP)] = options.Decoder.auto,
    no_store: Annotated[bool, typer.Option("--no-store", help="Neither look up nor keep scores.")] = False,
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    device_map: options.DeviceMapOption = None,
    quantization: options.QuantizationOption = None,
    attention: options.AttentionOption = None,
    revision: options.RevisionOption = None,
    trust_remote_code: options.TrustOption = False,
    allow_untested: options.UntestedOption = False,
    backend: options.BackendOption = options.Backend.local,
    workers: options.WorkersOption = 0,
    address: options.AddressOption = None,
    gpus_per_worker: options.GpusOption = None,
    worker_timeout: options.WorkerTimeoutOption = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a route and the standard pass on the same examples, and say whether the difference is real.

    Example: `macro evaluate --task category --mode likelihood --route 'L0-L17 L17 RJ' --limit 200`
    """
    options.need_models_extra()
    options.quiet_libraries()
    from macro_routing.cli.stopping import stopping_with
    from macro_routing.evaluation.evaluator import Evaluator
    from macro_routing.evaluation.score_store import ScoreStore, default_store_path
    from macro_routing.evaluation.statistics import compare_paired
    from macro_routing.models.frozen import LoadOptions, load_model
    from macro_routing.routes.route import Route
    from macro_routing.tasks.benchmarks import list_contaminating_tasks
    from macro_routing.tasks.catalog import load_task
    from macro_routing.tasks.splits import make_splits
    from macro_routing.workers.worker_messages import TaskSource, WorkerSetup
    from macro_routing.workers.worker_pool import create_worker_pool
    from macro_routing.workers.worker_settings import WorkerError

    crew = options.worker_settings(backend, workers, address, gpus_per_worker, worker_timeout)
    known_of = options.route_file(route)
    searched_with = _seed_of(known_of)
    seed = seed if seed is not None else searched_with or 0
    columns: dict[str, Any] = {"question": question, "answer": answer, "choices": choices, "kind": kind}
    chosen = load_task(task, data_dir, seed, **columns)
    given = {"reasoning_budget": reasoning_budget, "answer_budget": answer_budget, "by_letter": by_letter or None}
    decoding = _decoding(known_of, mode, chosen, given)
    examples = make_splits(chosen, seed=seed).get_split(split.value)[:limit]
    if known_of and known_of.task == chosen.name and searched_with not in {None, seed}:
        _warn_of_overlap(examples, load_task(task, data_dir, searched_with, **columns), searched_with)
    loading = LoadOptions(
        dtype, device, device_map, quantization, attention, revision, trust_remote_code, allow_untested
    )
    source = TaskSource(task, str(data_dir) if data_dir else None, seed, question, answer, choices, kind)
    kept = "nothing was kept" if no_store else "what was scored is kept, the same command goes on from there"
    with (
        stopping_with(kept),
        nullcontext()
        if crew.runs_in_process
        else create_worker_pool(crew, WorkerSetup(model, loading, (source,)), options.report_progress) as pool,
    ):
        frozen = (pool.load_driver_model if pool else load_model)(model, loading, options.report_progress)
        parsed = options.read_route(route, frozen)
        known = None if no_store else ScoreStore(store or default_store_path())
        standard = Route.standard(frozen.layers)
        evaluator = Evaluator(frozen, chosen, decoding, known, decoder=decoder.value, executor=pool)
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
        arms = {"standard": _arm(scores[standard]), "route": _arm(scores[parsed])}
        print_json(
            {**facts, **arms, "comparison": {**dataclasses.asdict(comparison), "difference": comparison.difference}}
        )
        return
    _print(comparison, scores[standard], scores[parsed])


def _seed_of(found: RouteFile | None) -> int | None:
    seed = found.found_by.get("seed") if found else None
    return seed if isinstance(seed, int) and seed >= 0 else None


def _decoding(found: RouteFile | None, mode: SearchMode | None, task: Task, given: dict[str, Any]) -> DecodingSettings:
    """Flags before what the route was found with, before the defaults; another way to answer has its own budgets."""
    from macro_routing.evaluation.decoding_settings import DecodingSettings, default_answer_mode

    known = dict(found.decoding) if found and found.task == task.name and mode is None else {}
    asked = None if mode in {None, SearchMode.auto} else mode
    fields = {field.name for field in dataclasses.fields(DecodingSettings)}
    values = {name: value for name, value in known.items() if name in fields}
    values |= {name: value for name, value in given.items() if value is not None}
    return DecodingSettings(
        **{**values, "mode": asked.value if asked else values.get("mode", default_answer_mode(task))}
    )


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


def _arm(evaluated: RouteEvaluation) -> dict[str, Any]:
    return {
        "route": str(evaluated.route),
        "length": evaluated.route.length,
        "correct": sum(evaluated.correct),
        "n": len(evaluated.correct),
        "cut_off": evaluated.truncated_share,
        "tokens": evaluated.mean_tokens,
        "from_store": evaluated.from_store,
    }


def _print(comparison: PairedComparison, standard: RouteEvaluation, routed: RouteEvaluation) -> None:
    rows = []
    for name, arm in (("standard", standard), ("route", routed)):
        accuracy = f"{sum(arm.correct)} of {comparison.n} right, {100 * sum(arm.correct) / comparison.n:.1f} %"
        cost = (
            f"cut off {100 * arm.truncated_share:.1f} %, {arm.mean_tokens:.1f} tokens, {arm.from_store} from the store"
        )
        rows.append((name, f"{accuracy}; {cost}"))
    rows += [
        ("difference", f"{100 * comparison.difference:+.1f} points, 95 % interval {_interval(comparison)}"),
        ("p-value", f"{comparison.p_value:.3g} (exact McNemar; {comparison.fixed} fixed, {comparison.broken} broken)"),
    ]
    print_fields(rows)


def _interval(comparison: PairedComparison) -> str:
    return f"{100 * comparison.low:+.1f} to {100 * comparison.high:+.1f}"
