"""``macro search``: from a model and a task to a route that is worth deploying, or an honest no."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli.console import print_fields, print_json
from macro_routing.cli.run_options import (
    OUTPUT_PANEL,
    ConfigOption,
    DryRunOption,
    JsonOption,
    StoreOption,
    Tables,
    make_run_config,
    make_worker_settings,
    with_run_options,
)
from macro_routing.runs.options import run_options

if TYPE_CHECKING:
    from macro_routing.runs.config import RunConfig
    from macro_routing.runs.result import RunResult
    from macro_routing.workers.worker_settings import WorkerSettings


@with_run_options(*run_options())
def search(
    flags: Tables,
    config: ConfigOption = None,
    store: StoreOption = None,
    dry_run: DryRunOption = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run's folder.", show_default="runs/TASK-MODEL-PRESET-SEED", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(help="Also log to tensorboard, wandb or trackio; may be repeated.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search a better order of a model's layers for a task, choose one on held-out data, test it once.

    Everything is kept in a folder; a run that was stopped goes on with `macro resume`.

    Example: `macro search --task category --preset quick`

    Your own data: `macro search --task mine.csv --answer right --choices right,wrong1,wrong2 --preset quick`
    """
    options.require_models_extra()
    options.quiet_libraries()
    workers = make_worker_settings(flags)
    run_config = make_run_config(flags, config)
    if dry_run:
        from macro_routing.cli.plan import print_plan

        print_plan(run_config, store, as_json=as_json)
        return
    search_and_report(run_config, out, store, log_to or [], as_json=as_json, workers=workers)


def search_and_report(
    run_config: RunConfig,
    out: Path | None,
    store: Path | None,
    log_to: list[str],
    *,
    as_json: bool,
    workers: WorkerSettings | None = None,
) -> RunResult:
    """Run a search in its folder, write the report, print the result."""
    from macro_routing.cli.progress import make_listener
    from macro_routing.cli.stopping import stop_with_resume_hint
    from macro_routing.report import write_report
    from macro_routing.runs.prepare import run_search

    folder = out or _find_free_folder(run_config)
    with make_listener(folder, log_to) as listener, stop_with_resume_hint(folder):
        result = run_search(run_config, folder, listener=listener, store=store, workers=workers)
        page = write_report(folder)
    print_result(result, page, as_json=as_json)
    return result


def _find_free_folder(run_config: RunConfig) -> Path:
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
