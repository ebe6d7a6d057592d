"""``macro evaluate``: a route against the standard pass on a task, with an interval and a p-value."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from macro_routing import evaluation, models, tasks
from macro_routing.cli.console import check_and_quiet_model_libraries, print_fields, print_json, print_progress_message
from macro_routing.cli.progress import ProgressLinePrinter
from macro_routing.cli.route_argument import check_route_without_model, read_route_file, read_route_or_mixture
from macro_routing.cli.run_options import (
    DATA_PANEL,
    DECODING,
    EXECUTION,
    EXECUTION_PANEL,
    LOADING,
    NO_PRESET,
    FlagCustomization,
    FlagTables,
    JsonOption,
    StoreOption,
    make_run_config,
    make_worker_settings,
    with_run_options,
)
from macro_routing.cli.stopping import show_hint_on_interrupt
from macro_routing.engine.decoders import AUTO, FUSED
from macro_routing.evaluation.decoding_settings import DecodingSettings, default_answer_mode
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile
from macro_routing.runs.config import RunConfig
from macro_routing.tasks.prompts import LIKELIHOOD
from macro_routing.workers.worker_settings import WorkerError

if TYPE_CHECKING:
    from macro_routing.evaluation.outcomes import RouteEvaluation


@with_run_options(
    *("task", "model", "seed", "test_seed", *DECODING, "decoder", "data_dir", "question", "answer", "choices", "kind"),
    *(*LOADING, *EXECUTION),
    task=FlagCustomization(required=True),
    model=FlagCustomization(default=f"that of the route's file, else {DEFAULT_MODEL}"),
    seed=FlagCustomization(
        help="Seed of the splits, and of synthetic tasks.", default="that of the route's search, else 0"
    ),
    test_seed=FlagCustomization(default="that of the route's search, else the seed"),
    mode=FlagCustomization(default="as in the route's file, else auto"),
    reasoning_budget=FlagCustomization(default="as in the route's file, else 400"),
    answer_budget=FlagCustomization(default="as in the route's file, else 128"),
    kind=FlagCustomization(help="Kind of the answers: number, choice, math or text; choice where --choices is given."),
    **NO_PRESET,
)
def evaluate(
    flags: FlagTables,
    route: Annotated[str, typer.Option(help="The route, in any notation, or a file that holds one.")],
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="Which examples.", rich_help_panel=DATA_PANEL)
    ] = "test",
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
    check_and_quiet_model_libraries()
    from macro_routing.evaluation.score_store import default_store_path
    from macro_routing.runs.prepare import get_or_create_worker_pool, load_configured_model, load_configured_task
    from macro_routing.tasks.benchmarks import list_contaminating_tasks

    file = read_route_file(route)
    searched = _read_search_seeds(file)
    workers = make_worker_settings(flags)
    data = {"test_seed": searched.test_seed, **flags.get("data", {})}
    given = {"seed": searched.seed or 0, **({"model": file.model} if file else {}), **flags[""]}
    config = make_run_config({**flags, "": given, "data": data}, None)
    check_route_without_model(route, config.model)
    task, seed = load_configured_task(config), config.seed
    decoding = _override_decoding_with_flags(file, task, flags.get("decoding", {}))
    seeds = _SearchSeeds(seed, config.data.test_seed)
    examples = seeds.split_examples(task).get_split(split)[:limit]
    if file and file.task == task.name and searched.seed is not None and searched != seeds:
        search_config = config.with_changes(seed=searched.seed, data={**data, "test_seed": searched.test_seed})
        _warn_of_seen_examples(examples, load_configured_task(search_config), searched)
    listener = ProgressLinePrinter(Path())
    kept = "nothing was kept" if no_store else "what was scored is kept, the same command continues from there"
    with show_hint_on_interrupt(kept), get_or_create_worker_pool(config, workers, listener) as pool:
        known = None if no_store else evaluation.ScoreStore(store or default_store_path())
        stand_in = _make_stand_in(config, decoding) if known is not None and pool is None else None
        frozen = stand_in or load_configured_model(config, pool, listener)
        routes = [Route.standard(frozen.layers), read_route_or_mixture(route, frozen)]
        evaluator = evaluation.Evaluator(frozen, task, decoding, known, decoder=config.decoder, executor=pool)
        if stand_in is not None and not evaluator.has_stored_all(routes, examples):
            print_progress_message(f"loading {config.model}")
            evaluator = dataclasses.replace(evaluator, frozen=load_configured_model(config, pool, listener))
        if contaminating := list_contaminating_tasks(task.name):
            print_progress_message(
                f"warning: {task.name} shares questions with {', '.join(contaminating)};"
                " a route that was searched on those cannot be judged here"
            )
        print_progress_message(f"{len(examples)} {split} examples of {task.name}, {decoding.mode}, {seeds}")
        evaluations = evaluator.evaluate(routes, examples)
    standard, routed = (evaluations[one] for one in routes)
    if reason := routed.failure:
        raise WorkerError(
            f"the route {routed.route} cannot be run: it {reason}; the same with --workers 0 shows what happens to it"
        )
    is_same_route = standard.route == routed.route
    comparison = evaluation.compare_paired(standard.correct, routed.correct, seed=seed, is_same_route=is_same_route)
    if as_json:
        facts = {"task": task.name, "split": split, **dataclasses.asdict(seeds), "scope": evaluator.scope}
        arms = {"standard": _evaluation_to_json(standard), "route": _evaluation_to_json(routed)}
        print_json(
            {**facts, **arms, "comparison": {**dataclasses.asdict(comparison), "difference": comparison.difference}}
        )
        return
    interval = f"{100 * comparison.low:+.1f} to {100 * comparison.high:+.1f}"
    print_fields(
        [
            ("standard", _describe_evaluation_result(standard)),
            ("route", _describe_evaluation_result(routed)),
            ("difference", f"{100 * comparison.difference:+.1f} points, 95 % interval {interval}"),
            (
                "p-value",
                f"{comparison.p_value:.3g} (exact McNemar; {comparison.fixed} fixed, {comparison.broken} broken)",
            ),
        ]
    )


@dataclass(frozen=True)
class _SearchSeeds:
    """What decides which examples are in which split."""

    seed: int | None = None
    test_seed: int | None = None

    def split_examples(self, task: tasks.Task) -> tasks.Splits:
        return tasks.make_splits(task, seed=self.seed or 0, test_seed=self.test_seed)

    def __str__(self) -> str:
        shared = "" if self.test_seed is None else f", test seed {self.test_seed}"
        return f"seed {self.seed}{shared}"


def _read_search_seeds(file: RouteFile | None) -> _SearchSeeds:
    """The seeds that a route was searched with; None where its file does not say."""
    found_by = file.found_by if file else {}
    seeds = {name: found_by.get(name) for name in ("seed", "test_seed")}
    return _SearchSeeds(**{name: seed for name, seed in seeds.items() if isinstance(seed, int) and seed >= 0})


def _make_stand_in(config: RunConfig, decoding: DecodingSettings) -> models.FrozenModel | None:
    """The model without its weights, which are not needed where the store has all scores; None where it is unclear."""
    from macro_routing.models.frozen import make_stand_in_without_weights

    if config.loading.device_map or config.loading.quantization or config.decoder == FUSED:
        return None
    stand_in = make_stand_in_without_weights(config.model, config.loading, print_progress_message)
    decoder_is_known = decoding.mode == LIKELIHOOD or stand_in.model.device.type == "cpu"
    return stand_in if decoder_is_known else None


def _override_decoding_with_flags(file: RouteFile | None, task: tasks.Task, given: dict[str, Any]) -> DecodingSettings:
    """Flags override what the route was found with; another way to answer has its own budgets."""
    known = dict(file.decoding) if file and file.task == task.name and "mode" not in given else {}
    fields = {field.name for field in dataclasses.fields(DecodingSettings)}
    values = {name: value for name, value in {**known, **given}.items() if name in fields and value != AUTO}
    return DecodingSettings(**{"mode": default_answer_mode(task), **values})


def _warn_of_seen_examples(examples: Sequence[tasks.Example], task: tasks.Task, searched: _SearchSeeds) -> None:
    """Examples that a route was searched on say nothing about it; another seed divides them otherwise."""
    before = searched.split_examples(task)
    seen = {example.normalized_question for example in (*before.train, *before.validation)}
    if count := sum(example.normalized_question in seen for example in examples):
        print_progress_message(
            f"warning: the route was searched with {searched}, and {count} of these {len(examples)} examples may have"
            f" been among those that it was searched or chosen on; leave out --seed and --test-seed to have its test"
            " examples"
        )


def _evaluation_to_json(evaluated: RouteEvaluation) -> dict[str, Any]:
    return {
        "route": str(evaluated.route),
        "length": evaluated.route.length,
        "correct": sum(evaluated.correct),
        "n": len(evaluated.correct),
        "truncated_share": evaluated.truncated_share,
        "tokens": evaluated.mean_tokens,
        "from_store": evaluated.from_store,
    }


def _describe_evaluation_result(evaluated: RouteEvaluation) -> str:
    correct, n = sum(evaluated.correct), len(evaluated.correct)
    return (
        f"{correct} of {n} correct, {100 * correct / n:.1f} %; truncated {100 * evaluated.truncated_share:.1f} %,"
        f" {evaluated.mean_tokens:.1f} tokens, {evaluated.from_store} from the store"
    )
