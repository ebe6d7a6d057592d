"""``macro search``: from a model and a task to a route that is worth deploying, or an honest no."""

import itertools
import re
from pathlib import Path
from typing import Annotated

import typer

from macro_routing import runs
from macro_routing.cli.console import check_and_quiet_model_libraries
from macro_routing.cli.progress import make_progress_listener
from macro_routing.cli.run_options import (
    OUTPUT_PANEL,
    ConfigOption,
    DryRunOption,
    FlagTables,
    JsonOption,
    StoreOption,
    make_run_config,
    make_worker_settings,
    with_run_options,
)
from macro_routing.cli.stopping import make_store_flags, stop_with_resume_hint
from macro_routing.runs.config import RunConfig
from macro_routing.runs.options import collect_run_options
from macro_routing.runs.trusted_code import list_trust_flags
from macro_routing.workers.worker_settings import WorkerSettings


@with_run_options(*collect_run_options())
def search(
    flags: FlagTables,
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

    Everything is kept in a folder; `macro resume` continues a run that was stopped.

    Example: `macro search --task category --preset quick`

    Own data: `macro search --task mine.csv --question ask --answer right --choices right,wrong1,wrong2 --preset quick`
    """
    workers = make_worker_settings(flags)
    run_config = make_run_config(flags, config)
    check_and_quiet_model_libraries()
    if dry_run:
        from macro_routing.cli.plan import print_search_plan

        print_search_plan(run_config, store, as_json=as_json)
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
) -> None:
    """Run a search in its folder, write the report, print the result."""
    from macro_routing.cli.run_result import print_run_result
    from macro_routing.report import write_report

    folder = out or _choose_run_folder(run_config)
    hint = stop_with_resume_hint(folder, [*list_trust_flags(run_config), *make_store_flags(store)])
    with make_progress_listener(folder, log_to) as listener, hint:
        result = runs.run_search(run_config, folder, listener=listener, store=store, workers=workers)
        page = write_report(folder)
    print_run_result(result, page, as_json=as_json)


def _choose_run_folder(run_config: RunConfig) -> Path:
    """A new folder named after the task, the model, the preset and the seed."""
    names = [Path(name).name.removesuffix(".gguf") for name in (run_config.task, run_config.model)]
    task, model = (re.sub(r"[^\w.-]+", "-", name)[:40] for name in names)
    return find_free_folder(f"{task}-{model}-{run_config.preset}-{run_config.seed}")


def find_free_folder(name: str) -> Path:
    """The first of ``runs/NAME``, ``runs/NAME.2``, … that does not exist."""
    names = (name if number == 1 else f"{name}.{number}" for number in itertools.count(1))
    return next(path for path in map(Path("runs").joinpath, names) if not path.exists())
