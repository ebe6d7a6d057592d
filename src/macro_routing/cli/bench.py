"""``macro bench``: how fast many routes run on a model, measured against plain ways in the same process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from macro_routing import models, tasks
from macro_routing.cli.console import (
    check_and_quiet_model_libraries,
    print_fields,
    print_json,
    print_progress_message,
    print_table,
)
from macro_routing.cli.run_options import NO_PRESET, FlagTables, make_load_options_from_flags, with_run_options
from macro_routing.engine.decoders import FUSED, get_fused_decoder
from macro_routing.errors import SettingsError
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.routes.route import Route
from macro_routing.tasks.prompts import LIKELIHOOD


@with_run_options("dtype", "device", "quantization", **NO_PRESET)
def bench(
    flags: FlagTables,
    model: Annotated[str, typer.Argument(help="A built-in name, a folder, a .gguf file or a hub id.")] = DEFAULT_MODEL,
    task: Annotated[str, typer.Option(help="A task's name, or a .toml file of your own.")] = "category",
    mode: Annotated[
        Literal["reasoning", "direct", "likelihood"], typer.Option(help="How the model answers.")
    ] = "likelihood",
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
    check_and_quiet_model_libraries()
    _check_writable(output)
    loaded_task = tasks.load_task(task, data_dir=data_dir, seed=seed)
    training = tasks.make_splits(loaded_task, seed=seed).train
    frozen = models.load_model(model, make_load_options_from_flags(flags), print_progress_message)

    from macro_routing.evaluation.bench import draw_routes_from_prior
    from macro_routing.models.environment import describe_environment

    decoding = DecodingSettings(mode, reasoning_budget, answer_budget)
    drawn = draw_routes_from_prior(frozen.layers, draws, seed)
    record: dict[str, Any] = {"model": frozen.name, "task": loaded_task.name}
    if fused:
        record["decoding"] = _time_fused_against_eager(
            frozen, loaded_task, drawn, training[:examples], decoding, compared
        )
    else:
        record |= {"decoding": mode, "seed": seed}
        record["environment"] = {fact.topic: fact.finding for fact in describe_environment()}
        record |= _time_shared_and_separate_routes(
            frozen, loaded_task, drawn, training, decoding, examples, edits, race_examples, min(elite, draws)
        )
    output.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    if as_json:
        print_json(record)
        return
    if fused:
        print(_describe_fused_timing(record["decoding"]))
    else:
        _print_many_route_timings(record["draws"], record["sweep"], record["race"])
    print(f"\nwritten to {output}")


def _check_writable(path: Path) -> None:
    """Reject before minutes of measuring what could not be kept afterwards."""
    try:
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise SettingsError(f"--output {path} cannot be written: {error.strerror}") from None


def _time_shared_and_separate_routes(
    frozen: models.FrozenModel,
    task: tasks.Task,
    drawn: list[Route],
    training: Sequence[tasks.Example],
    decoding: DecodingSettings,
    examples: int,
    edits: int | None,
    race_examples: int,
    elite: int,
) -> dict[str, Any]:
    """Draws and single edits together and one after the other, and a race of the draws."""
    from macro_routing.evaluation.bench import benchmark_racing, make_repeat_and_skip_routes, time_joint_route_scoring

    swept = make_repeat_and_skip_routes(frozen.layers)
    swept = swept[:: max(1, len(swept) // edits)][:edits] if edits else swept
    print_progress_message(f"{len(drawn)} draws on {examples} examples, together and one after the other")
    drawn_timing = time_joint_route_scoring(frozen, task, drawn, training[:examples], decoding)
    few = max(1, examples // 4)
    print_progress_message(f"{len(swept)} single repeats and skips on {few} examples")
    swept_timing = time_joint_route_scoring(frozen, task, swept, training[:few], decoding)
    print_progress_message(f"{len(drawn)} draws racing over {race_examples} examples")
    race = benchmark_racing(frozen, task, drawn, training[:race_examples], elite, decoding)
    return {
        "draws": drawn_timing,
        "sweep": swept_timing,
        "race": race,
    }


def _time_fused_against_eager(
    frozen: models.FrozenModel,
    task: tasks.Task,
    drawn: list[Route],
    examples: Sequence[tasks.Example],
    decoding: DecodingSettings,
    compared: int,
) -> dict[str, Any]:
    """The same routes and prompts by fused decoding and by ``model.generate``, every row to its budgets."""
    from macro_routing.evaluation.bench import time_fused_decoding
    from macro_routing.evaluation.model_answers import encode_prompts_and_generation_stages

    if decoding.mode == LIKELIHOOD:
        raise SettingsError("--fused needs answers that are written; use --mode direct or --mode reasoning")
    decoder = get_fused_decoder(frozen, FUSED)
    assert decoder is not None
    routes = list(dict.fromkeys(drawn))
    print_progress_message(f"{len(routes)} routes on {len(examples)} prompts, {min(compared, len(routes))} by generate")
    prompts, stages = encode_prompts_and_generation_stages(frozen, task, examples, decoding)
    return time_fused_decoding(decoder, frozen.model, routes, routes[:compared], prompts, stages)


def _describe_fused_timing(timing: Mapping[str, Any]) -> str:
    return (
        f"{timing['speedup']:.2f} times as fast as generate on the same {len(timing['compared_routes'])} routes:"
        f" {timing['fused_seconds']:.2f} s instead of {sum(timing['generate_seconds']):.1f} s for"
        f" {timing['prompts']} prompts, {timing['tokens_per_row']} tokens each;"
        f" generate in batches of {timing['generate_rows']}\n"
        f"{timing['speedup_per_step']:.2f} times as fast per layer application with all {timing['all_routes']} routes:"
        f" {timing['all_seconds']:.1f} s, at most {timing['peak_bytes'] / 1e9:.0f} GB"
    )


def _print_many_route_timings(drawn: Mapping[str, Any], swept: Mapping[str, Any], race: Mapping[str, Any]) -> None:
    values = [_format_engine_timing(timing) for timing in (drawn, swept)]
    rows = [(name, *(column[name] for column in values)) for name in values[0]]
    headings = ("", "prior's draws", "repeats and skips")
    print_table(headings, rows, title="many routes over many prompts", title_justify="left")
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


def _format_engine_timing(timing: Mapping[str, Any]) -> dict[str, str]:
    return {
        "different routes × examples": f"{timing['routes']} × {timing['examples']}",
        "seconds, one after the other": f"{sum(timing['plain_chunks']):.1f}",
        "seconds, together": f"{sum(timing['shared_chunks']):.1f}",
        "times as fast": f"{timing['speedup']:.2f}",
        "limit of sharing": f"{timing['limit']:.2f}",
        "share of the limit": f"{100 * timing['speedup'] / timing['limit']:.0f} %",
        "changed verdicts": str(timing["changed_verdicts"]),
    }
