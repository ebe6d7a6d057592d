"""``macro search``: from a model and a task to a route that is worth deploying, or an honest no."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json, read_toml
from macro_routing.errors import SettingsError
from macro_routing.search.method_names import METHOD_NAMES

if TYPE_CHECKING:
    from macro_routing.runs.config import RunConfig
    from macro_routing.runs.result import RunResult
    from macro_routing.workers.worker_settings import WorkerSettings


class Preset(StrEnum):
    """Settings by name."""

    default = "default"
    quick = "quick"
    paper = "paper"


class SearchMode(StrEnum):
    """Ways to answer; auto compares choices by likelihood and lets the model write the rest."""

    auto = "auto"
    reasoning = "reasoning"
    direct = "direct"
    likelihood = "likelihood"


def search(
    task: Annotated[
        str | None, typer.Option(help="A task's name (see `macro tasks`), a .toml, or a .jsonl or .csv file.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A built-in name, a folder, a .gguf file or a hub id.", show_default="smollm2-135m"),
    ] = None,
    preset: Annotated[Preset | None, typer.Option(help="Settings by name.", show_default="default")] = None,
    method: Annotated[
        str | None, typer.Option(help=f"How routes are found: {', '.join(METHOD_NAMES)}.", show_default="the preset's")
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Outcomes, route × example, that the search may ask for.", show_default="what MACRO asks for"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of splits and draws.", show_default="0")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder.", show_default="runs/TASK-MODEL-PRESET-SEED")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with these settings; flags go before it.", show_default=False)
    ] = None,
    mode: Annotated[SearchMode | None, typer.Option(help="How the model answers.", show_default="auto")] = None,
    reasoning_budget: Annotated[int | None, typer.Option(help="Most tokens of reasoning.", show_default="400")] = None,
    answer_budget: Annotated[int | None, typer.Option(help="Most tokens of the answer.", show_default="128")] = None,
    by_letter: Annotated[bool | None, typer.Option("--by-letter", help="Likelihood of the letters.")] = None,
    stop_loops: Annotated[
        bool | None,
        typer.Option("--stop-loops/--no-stop-loops", help="Do not wait for answers that loop."),
    ] = None,
    training: Annotated[int | None, typer.Option(help="Training examples.", show_default="the preset's")] = None,
    validation: Annotated[int | None, typer.Option(help="Validation examples.", show_default="the preset's")] = None,
    test: Annotated[
        int | None, typer.Option(help="Use only the first so many test examples.", show_default="all, or the preset's")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Rounds; the guided search has its own.", show_default="the preset's")
    ] = None,
    draws: Annotated[int | None, typer.Option(help="Routes drawn per round.", show_default="the preset's")] = None,
    elite: Annotated[
        int | None,
        typer.Option(help="How many of them move the policy; not in the guided search.", show_default="the preset's"),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k",
            help="Candidates that are validated at the end; not in the guided search.",
            show_default="the preset's",
        ),
    ] = None,
    max_error_probability: Annotated[
        float | None,
        typer.Option(
            help="How probable it may be that the chosen route is no better; in the guided search.", show_default="0.1"
        ),
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Longest route.", show_default="layers + 12")] = None,
    no_adds: Annotated[
        bool, typer.Option("--no-adds", help="Only routes that every export takes: nothing is added to a state.")
    ] = False,
    racing: Annotated[
        options.Racing | None, typer.Option(help="Which hopeless routes are given up early.", show_default="exact")
    ] = None,
    no_racing: Annotated[
        bool, typer.Option("--no-racing", help="Score every route to the end; the same elite.")
    ] = False,
    decoder: Annotated[options.Decoder | None, typer.Option(help=options.DECODER_HELP, show_default="auto")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop in time, and still select and test.")] = None,
    init_from: Annotated[str | None, typer.Option(help="A run's folder or a route to start from.")] = None,
    guard: Annotated[
        list[str] | None, typer.Option(help="A task on which the winner must not lose; may be given several times.")
    ] = None,
    max_drop: Annotated[float | None, typer.Option(help="Most points it may lose there.", show_default="2")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the benchmarks' files; else MACRO_DATA_DIR, else the hub.")
    ] = None,
    question: options.QuestionOption = None,
    answer: options.AnswerOption = None,
    choices: options.ChoicesOption = None,
    kind: options.KindOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done and how long it takes.")
    ] = False,
    store: Annotated[Path | None, typer.Option(help="Where scores are kept.", show_default="the cache folder")] = None,
    log_to: Annotated[
        list[str] | None, typer.Option(help="Also log to tensorboard, wandb or trackio; may be given several times.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.", show_default="auto")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", show_default="auto")] = None,
    device_map: options.DeviceMapOption = None,
    quantization: options.QuantizationOption = None,
    attention: options.AttentionOption = None,
    revision: options.RevisionOption = None,
    trust_remote_code: Annotated[
        bool | None, typer.Option("--trust-remote-code", help="Let code that comes with the model run.")
    ] = None,
    allow_untested: Annotated[
        bool | None, typer.Option("--allow-untested", help="Try an architecture that the tests do not cover.")
    ] = None,
    backend: options.BackendOption = options.Backend.local,
    workers: options.WorkersOption = 0,
    address: options.AddressOption = None,
    gpus_per_worker: options.GpusOption = None,
    worker_timeout: options.WorkerTimeoutOption = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search a better order of a model's layers for a task, choose one on held-out data, test it once.

    Everything is kept in a folder; a run that was stopped goes on with `macro resume`.

    Example: `macro search --task category --preset quick`

    Your own data: `macro search --task mine.csv --answer right --choices right,wrong1,wrong2 --preset quick`
    """
    flags: dict[str, dict[str, Any]] = {
        "": {
            "task": task,
            "model": model,
            "preset": preset and preset.value,
            "method": method,
            "budget": budget,
            "seed": seed,
            "racing": "never" if no_racing else racing and racing.value,
            "decoder": decoder and decoder.value,
            "max_minutes": max_minutes,
            "init_from": init_from,
        },
        "decoding": {
            "mode": mode and mode.value,
            "reasoning_budget": reasoning_budget,
            "answer_budget": answer_budget,
            "by_letter": by_letter,
            "stop_loops": stop_loops,
        },
        "data": {
            "training": training,
            "validation": validation,
            "test": test,
            "data_dir": data_dir and str(data_dir),
            "question": question,
            "answer": answer,
            "choices": choices,
            "kind": kind,
        },
        "search": {
            "iterations": iterations,
            "draws": draws,
            "elite": elite,
            "k": k,
            "max_error_probability": max_error_probability,
        },
        "space": {"max_length": max_length, "window": 0 if no_adds else None},
        "guard": {"tasks": guard, "max_drop": max_drop},
        "loading": {
            "dtype": dtype,
            "device": device,
            "device_map": device_map,
            "quantization": quantization,
            "attention": attention,
            "revision": revision,
            "trust_remote_code": trust_remote_code,
            "allow_untested": allow_untested,
        },
    }
    options.need_models_extra()
    options.quiet_libraries()
    crew = options.worker_settings(backend, workers, address, gpus_per_worker, worker_timeout)
    run_config = make_config(flags, config)
    if dry_run:
        from macro_routing.cli.plan import print_plan

        print_plan(run_config, store, as_json=as_json)
        return
    finish(run_config, out, store, log_to or [], as_json=as_json, workers=crew)


def make_config(flags: dict[str, dict[str, Any]], file: Path | None, values: dict[str, Any] | None = None) -> RunConfig:
    """Flags before the file, whose ``values`` may be read already, before the preset."""
    from macro_routing.runs.config import RunConfig

    if values is None:
        values = read_toml(file) if file else {}
    for table, entries in flags.items():
        if not isinstance(values.get(table, {}), dict):
            raise SettingsError(f"{file}: {table} must be a table of settings")
        given = {name: value for name, value in entries.items() if value is not None}
        if table == "":
            values |= given
        elif given:
            values[table] = {**values.get(table, {}), **given}
    return RunConfig.from_tables(values, str(file) if file else "the flags")


def finish(
    run_config: RunConfig,
    out: Path | None,
    store: Path | None,
    log_to: list[str],
    *,
    as_json: bool,
    workers: WorkerSettings | None = None,
) -> RunResult:
    """Run a search in its folder, write the report, print the result."""
    from macro_routing.cli.progress import listener_for
    from macro_routing.cli.stopping import stoppable
    from macro_routing.report import write_report
    from macro_routing.runs.prepare import run_search

    folder = out or _new_folder(run_config)
    with listener_for(folder, log_to) as listener, stoppable(folder):
        result = run_search(run_config, folder, listener=listener, store=store, workers=workers)
        page = write_report(folder)
    print_result(result, page, as_json=as_json)
    return result


def _new_folder(run_config: RunConfig) -> Path:
    def short(text: str) -> str:
        return re.sub(r"[^\w.-]+", "-", Path(text).name.removesuffix(".gguf"))[:40]

    base = f"{short(run_config.task)}-{short(run_config.model)}-{run_config.preset}-{run_config.seed}"
    path = Path("runs") / base
    number = 2
    while path.exists():
        path = Path("runs") / f"{base}.{number}"
        number += 1
    return path


def print_result(result: RunResult, page: Path, *, as_json: bool) -> None:
    """The verdict, the variants, and what to do with them."""
    if as_json:
        print_json({**result.to_json(), "report": str(page)})
        return
    from rich.console import Console
    from rich.table import Table

    from macro_routing.evaluation.statistics import wilson_interval

    # What nothing was cut off of needs no column: a terminal is narrow.
    has_cuts = any(one.cut_off for one in result.variants)
    table = Table()
    for name in ("", "right", "% (95 %)", "layers", *(["cut off"] if has_cuts else []), "route"):
        table.add_column(name, justify="left" if name in {"", "route"} else "right", no_wrap=name != "route")
    for one in result.variants:
        low, high = wilson_interval(one.accuracy, one.n)
        table.add_row(
            one.name,
            f"{one.correct}/{one.n}",
            f"{100 * one.accuracy:.1f} ({100 * low:.0f}-{100 * high:.0f})",
            f"{one.length:.4g}",
            *([f"{100 * one.cut_off:.1f} %"] if has_cuts else []),
            one.route,
        )
    print(result.verdict)
    Console().print(table)
    if len(result.variants) > 2:
        print("MACRO was chosen on validation data; top-1 is the most probable program, no Vit. the best draw.")
    found = {"route": [("route file", "route.json")], "router": [("routers", "routers")]}.get(result.kind, [])
    files = [(name, Path(result.folder) / file) for name, file in found]
    # Where no example had a label there are no routers.
    print_fields([("report", str(page)), *((name, str(path)) for name, path in files if path.exists())])
