"""``macro bench``: how fast many routes run on a model, measured against plain ways in the same process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json
from macro_routing.errors import SettingsError
from macro_routing.models.catalog import DEFAULT_MODEL

if TYPE_CHECKING:
    from macro_routing.evaluation.decoding import Decoding
    from macro_routing.evaluation.engine_bench import Race, Sharing
    from macro_routing.models.frozen import FrozenModel
    from macro_routing.routes.route import Route
    from macro_routing.tasks.task import Example, Task


class Mode(StrEnum):
    """Ways to answer."""

    reasoning = "reasoning"
    direct = "direct"
    likelihood = "likelihood"


def bench(
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
    flight: Annotated[
        bool,
        typer.Option("--flight", help="Instead: decoding on a GPU against model.generate and the limit by bytes."),
    ] = False,
    compared: Annotated[int, typer.Option(min=1, help="Routes that model.generate runs, too, with --flight.")] = 4,
    reasoning_budget: Annotated[int, typer.Option(help="Most tokens of reasoning.")] = 64,
    answer_budget: Annotated[int, typer.Option(help="Most tokens of the answer.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of draws and splits.")] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the benchmarks' files.")] = None,
    output: Annotated[Path, typer.Option(help="Where the measurements are written.")] = Path("macro-bench.json"),
    dtype: options.DtypeOption = "auto",
    device: options.DeviceOption = "auto",
    quantization: options.QuantizationOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time many routes over many prompts: together against one after the other, raced against scored to the end.

    Example: `macro bench smollm2-135m --task category`

    On a GPU: `macro bench MODEL --flight --task gsm8k --mode reasoning --reasoning-budget 400 --answer-budget 128`
    """
    options.need_models_extra()
    options.quiet_libraries()
    import numpy as np

    from macro_routing.evaluation.decoding import Decoding
    from macro_routing.evaluation.engine_bench import as_record, block_sweep, measure_race, measure_sharing
    from macro_routing.models.environment import describe_environment
    from macro_routing.models.frozen import LoadOptions, load_model
    from macro_routing.routes.space import RouteSpace
    from macro_routing.search.policy import MarkovPolicy
    from macro_routing.tasks.catalog import load_task
    from macro_routing.tasks.splits import make_splits

    _check_writable(output)
    chosen = load_task(task, data_dir=data_dir, seed=seed)
    training = make_splits(chosen, seed=seed).train
    frozen = load_model(model, LoadOptions(dtype, device, quantization=quantization), options.report_progress)
    decoding = Decoding(mode.value, reasoning_budget, answer_budget)
    policy = MarkovPolicy.prior(RouteSpace(frozen.layers))
    rng = np.random.default_rng(seed)
    drawn = [policy.sample(rng).expand(frozen.layers) for _ in range(draws)]
    if flight:
        _bench_flight(frozen, chosen, drawn, training[:examples], decoding, compared, output, as_json=as_json)
        return
    swept = block_sweep(frozen.layers)
    swept = swept[:: max(1, len(swept) // edits)][:edits] if edits else swept
    options.report_progress(f"{draws} draws on {examples} examples, together and one after the other")
    sharing = measure_sharing(frozen, chosen, drawn, training[:examples], decoding)
    few = max(1, examples // 4)
    options.report_progress(f"{len(swept)} single repeats and skips on {few} examples")
    sweep = measure_sharing(frozen, chosen, swept, training[:few], decoding)
    options.report_progress(f"{draws} draws racing over {race_examples} examples")
    race = measure_race(frozen, chosen, drawn, training[:race_examples], min(elite, draws), decoding)
    record = {
        "model": frozen.name,
        "task": chosen.name,
        "decoding": mode.value,
        "seed": seed,
        "environment": {fact.topic: fact.finding for fact in describe_environment()},
        "draws": as_record(sharing),
        "sweep": as_record(sweep),
        "race": as_record(race),
    }
    output.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    if as_json:
        print_json(record)
        return
    _print(sharing, sweep, race)
    print(f"\nwritten to {output}")


def _bench_flight(
    frozen: FrozenModel,
    task: Task,
    drawn: list[Route],
    examples: Sequence[Example],
    decoding: Decoding,
    compared: int,
    output: Path,
    *,
    as_json: bool,
) -> None:
    """The same routes and prompts in flight and through ``model.generate``, every row to its budgets."""
    import dataclasses

    from macro_routing.engine.decoders import FLIGHT, flight_for
    from macro_routing.evaluation.answering import prompts_and_stages
    from macro_routing.tasks.prompts import LIKELIHOOD

    if decoding.mode == LIKELIHOOD:
        raise SettingsError("--flight needs answers that are written; use --mode direct or --mode reasoning")
    decoder = flight_for(frozen, FLIGHT)
    assert decoder is not None
    from macro_routing.evaluation.flight_bench import flight_figures  # needs triton

    routes = list(dict.fromkeys(drawn))
    options.report_progress(
        f"{len(routes)} routes on {len(examples)} prompts, {min(compared, len(routes))} by generate"
    )
    prompts, stages = prompts_and_stages(frozen, task, examples, decoding)
    figures = flight_figures(decoder, frozen.model, routes, prompts, stages, routes[:compared])
    record = {"model": frozen.name, "task": task.name, "figures": [dataclasses.asdict(one) for one in figures]}
    output.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    if as_json:
        print_json(record)
        return
    for one in figures:
        print(f"{one.figure:<66} {one.value:.2f}\n    {one.detail}")
    print(f"\nwritten to {output}")


def _check_writable(path: Path) -> None:
    """Refuse before minutes of measuring what could not be kept afterwards."""
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise SettingsError(f"--output {path} cannot be written: {error.strerror}") from None


_ROWS: tuple[tuple[str, Callable[[Sharing], str]], ...] = (
    ("different routes × examples", lambda one: f"{one.routes} × {one.examples}"),
    ("seconds, one after the other", lambda one: f"{one.plain_seconds:.1f}"),
    ("seconds, together", lambda one: f"{one.shared_seconds:.1f}"),
    ("times as fast", lambda one: f"{one.speedup:.2f}"),
    ("limit of sharing", lambda one: f"{one.limit:.2f}"),
    ("share of the limit", lambda one: f"{100 * one.share_of_limit:.0f} %"),
    ("tokens/s, one after the other", lambda one: _rate(one, one.plain_seconds)),
    ("tokens/s, together", lambda one: _rate(one, one.shared_seconds)),
    (
        "layer applications saved by sharing",
        lambda one: f"{one.plain_applications - one.shared_applications} of {one.plain_applications}",
    ),
    ("peak memory, one after the other", lambda one: _gigabytes(one.plain_peak)),
    ("peak memory, together", lambda one: _gigabytes(one.shared_peak)),
    ("largest difference of a log-likelihood", lambda one: f"{one.largest_difference:.1e}"),
    ("changed verdicts", lambda one: str(one.changed_verdicts)),
)


def _print(sharing: Sharing, sweep: Sharing, race: Race) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="many routes over many prompts", title_justify="left")
    table.add_column("")
    table.add_column("prior's draws", justify="right")
    table.add_column("repeats and skips", justify="right")
    for title, show in _ROWS:
        table.add_row(title, show(sharing), show(sweep))
    Console().print(table)
    print(
        f"race: {race.draws} draws ({race.different} different), {race.examples} examples, the best {race.keep} kept,"
        f" the last of them at {100 * race.elite_accuracy:.0f} %"
    )
    print_fields([(f"  {name}", value) for name, value in _race_rows(race)])


def _race_rows(race: Race) -> list[tuple[str, str]]:
    seconds = f"{race.race_seconds:.1f} raced, {race.full_seconds:.1f} scored to the end"
    exact = f"{race.factor(race.by_racing):.2f} times fewer; the same elite: {_yes(race.same_elite)}"
    guessed = f"{race.factor(race.by_statistics):.2f} times fewer; the same elite: {_yes(race.statistical_same_elite)}"
    return [
        ("outcomes asked for", str(race.asked)),
        ("saved by duplicates", str(race.by_duplicates)),
        ("saved by racing", f"{race.by_racing} of {race.asked - race.by_duplicates}, {exact}"),
        ("saved in hindsight", f"{race.by_hindsight}; racing reached {100 * race.share_of_hindsight:.0f} % of it"),
        ("saved by statistical mode", f"{race.by_statistics}, {guessed}"),
        ("seconds", seconds),
    ]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _rate(one: Sharing, seconds: float) -> str:
    return f"{one.tokens * one.routes / seconds:.0f}" if one.tokens else "-"


def _gigabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e9:.2f} GB"
