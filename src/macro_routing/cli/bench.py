"""``macro bench``: how fast many routes run on a model, measured against plain ways in the same process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json
from macro_routing.cli.run_options import Tables, make_load_options, with_run_options
from macro_routing.errors import SettingsError
from macro_routing.models.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.models.frozen import FrozenModel
    from macro_routing.routes.route import Route
    from macro_routing.tasks.task import Example, Task


class Mode(StrEnum):
    """Ways to answer."""

    reasoning = "reasoning"
    direct = "direct"
    likelihood = "likelihood"


@with_run_options("dtype", "device", "quantization")
def bench(
    flags: Tables,
    model: Annotated[str, typer.Argument(help="A built-in name, a folder, a .gguf file or a hub id.")] = DEFAULT_MODEL,
    task: Annotated[str, typer.Option(help="A task's name, or a .toml file of your own.")] = "category",
    mode: Annotated[Mode, typer.Option(help="How the model answers.")] = Mode.likelihood,
    draws: Annotated[int, typer.Option(min=2, help="Routes drawn from the prior.")] = 30,
    elite: Annotated[int, typer.Option(min=1, help="How many of them a round keeps.")] = 5,
    examples: Annotated[int, typer.Option(min=1, help="Training examples that both paths are timed on.")] = 16,
    race_examples: Annotated[int, typer.Option(min=1, help="Training examples the draws race over.")] = 48,
    edits: Annotated[
        int | None, typer.Option(min=1, help="How many of the single repeats and skips.", show_default="all")
    ] = None,
    fused: Annotated[
        bool,
        typer.Option("--fused", help="Instead: decoding on a GPU against model.generate."),
    ] = False,
    compared: Annotated[int, typer.Option(min=1, help="Routes that model.generate runs, too, with --fused.")] = 4,
    reasoning_budget: Annotated[int, typer.Option(help="Maximum reasoning tokens.")] = 64,
    answer_budget: Annotated[int, typer.Option(help="Maximum answer tokens.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of draws and splits.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the benchmarks' files.")] = None,
    output: Annotated[Path, typer.Option(help="Where the measurements are written.")] = Path("macro-bench.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time many routes over many prompts: together against one after the other, raced against scored to the end.

    Example: `macro bench smollm2-135m --task category`

    On a GPU: `macro bench MODEL --fused --task gsm8k --mode reasoning --reasoning-budget 400 --answer-budget 128`
    """
    options.require_models_extra()
    options.quiet_libraries()
    import numpy as np

    from macro_routing.evaluation.bench import make_repeat_and_skip_routes, time_race, time_shared_engine
    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.models.environment import describe_environment
    from macro_routing.models.frozen import load_model
    from macro_routing.routes.space import RouteSpace
    from macro_routing.search.policy import MarkovPolicy
    from macro_routing.tasks.catalog import load_task
    from macro_routing.tasks.splits import make_splits

    _check_writable(output)
    chosen = load_task(task, data_dir=data_dir, seed=seed)
    training = make_splits(chosen, seed=seed).train
    frozen = load_model(model, make_load_options(flags), options.report_progress)
    decoding = DecodingSettings(mode.value, reasoning_budget, answer_budget)
    policy = MarkovPolicy.make_prior(RouteSpace(frozen.layers))
    rng = np.random.default_rng(seed)
    drawn = [policy.sample_program(rng).expand(frozen.layers) for _ in range(draws)]
    if fused:
        _bench_fused(frozen, chosen, drawn, training[:examples], decoding, compared, output, as_json=as_json)
        return
    swept = make_repeat_and_skip_routes(frozen.layers)
    swept = swept[:: max(1, len(swept) // edits)][:edits] if edits else swept
    options.report_progress(f"{draws} draws on {examples} examples, together and one after the other")
    drawn_timing = time_shared_engine(frozen, chosen, drawn, training[:examples], decoding)
    few = max(1, examples // 4)
    options.report_progress(f"{len(swept)} single repeats and skips on {few} examples")
    swept_timing = time_shared_engine(frozen, chosen, swept, training[:few], decoding)
    options.report_progress(f"{draws} draws racing over {race_examples} examples")
    race = time_race(frozen, chosen, drawn, training[:race_examples], min(elite, draws), decoding)
    record = {
        "model": frozen.name,
        "task": chosen.name,
        "decoding": mode.value,
        "seed": seed,
        "environment": {fact.topic: fact.finding for fact in describe_environment()},
        "draws": drawn_timing,
        "sweep": swept_timing,
        "race": race,
    }
    _write_record(record, output, as_json=as_json, show=lambda: _print_timings(drawn_timing, swept_timing, race))


def _write_record(record: Mapping[str, Any], output: Path, *, as_json: bool, show: Callable[[], None]) -> None:
    output.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    if as_json:
        print_json(record)
        return
    show()
    print(f"\nwritten to {output}")


def _bench_fused(
    frozen: FrozenModel,
    task: Task,
    drawn: list[Route],
    examples: Sequence[Example],
    decoding: DecodingSettings,
    compared: int,
    output: Path,
    *,
    as_json: bool,
) -> None:
    """The same routes and prompts by fused decoding and by ``model.generate``, every row to its budgets."""
    from macro_routing.engine.decoders import FUSED, get_fused_decoder
    from macro_routing.evaluation.bench import time_fused_decoding
    from macro_routing.evaluation.model_answers import encode_prompts_and_stages
    from macro_routing.tasks.prompts import LIKELIHOOD

    if decoding.mode == LIKELIHOOD:
        raise SettingsError("--fused needs answers that are written; use --mode direct or --mode reasoning")
    decoder = get_fused_decoder(frozen, FUSED)
    assert decoder is not None
    routes = list(dict.fromkeys(drawn))
    options.report_progress(
        f"{len(routes)} routes on {len(examples)} prompts, {min(compared, len(routes))} by generate"
    )
    prompts, stages = encode_prompts_and_stages(frozen, task, examples, decoding)
    timing = time_fused_decoding(decoder, frozen.model, routes, routes[:compared], prompts, stages)
    record = {"model": frozen.name, "task": task.name, "decoding": timing}

    def show() -> None:
        print(
            f"{timing['speedup']:.2f} times as fast as generate on the same {len(timing['compared_routes'])} routes:"
            f" {timing['fused_seconds']:.2f} s instead of {sum(timing['generate_seconds']):.1f} s for"
            f" {timing['prompts']} prompts, {timing['tokens_per_row']} tokens each;"
            f" generate in batches of {timing['generate_rows']}\n"
            f"{timing['speedup_per_step']:.2f} times as fast per layer application with all"
            f" {timing['all_routes']} routes: {timing['all_seconds']:.1f} s,"
            f" at most {timing['peak_bytes'] / 1e9:.0f} GB"
        )

    _write_record(record, output, as_json=as_json, show=show)


def _check_writable(path: Path) -> None:
    """Reject before minutes of measuring what could not be kept afterwards."""
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise SettingsError(f"--output {path} cannot be written: {error.strerror}") from None


_ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("different routes × examples", lambda timing: f"{timing['routes']} × {timing['examples']}"),
    ("seconds, one after the other", lambda timing: f"{sum(timing['plain_chunks']):.1f}"),
    ("seconds, together", lambda timing: f"{sum(timing['shared_chunks']):.1f}"),
    ("times as fast", lambda timing: f"{timing['speedup']:.2f}"),
    ("limit of sharing", lambda timing: f"{timing['limit']:.2f}"),
    ("share of the limit", lambda timing: f"{100 * timing['speedup'] / timing['limit']:.0f} %"),
    ("changed verdicts", lambda timing: str(timing["changed_verdicts"])),
)


def _print_timings(drawn: Mapping[str, Any], swept: Mapping[str, Any], race: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="many routes over many prompts", title_justify="left")
    table.add_column("")
    table.add_column("prior's draws", justify="right")
    table.add_column("repeats and skips", justify="right")
    for title, show in _ROWS:
        table.add_row(title, show(drawn), show(swept))
    Console().print(table)
    print(
        f"race: {race['draws']} draws ({race['distinct_routes']} different), {race['examples']} examples,"
        f" the best {race['elite']} kept"
    )
    print_fields(
        [
            ("  evaluations requested", str(race["requested"])),
            ("  saved by duplicates", str(race["repeated"])),
            ("  saved by racing", f"{race['stopped']} of {race['requested'] - race['repeated']}"),
            ("  same elite as without racing", "yes" if race["same_elite"] else "no"),
            ("  seconds", f"{race['race_seconds']:.1f} with racing, {race['full_seconds']:.1f} without"),
        ]
    )
