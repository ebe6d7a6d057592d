"""``macro resume``: go on with a run that was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli.search import print_result


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    store: Annotated[Path | None, typer.Option(help="Where scores are kept.", show_default="as it began")] = None,
    log_to: Annotated[list[str] | None, typer.Option(help="Also log to tensorboard, wandb or trackio.")] = None,
    backend: options.BackendOption = options.Backend.local,
    workers: options.WorkersOption = 0,
    address: options.AddressOption = None,
    gpus_per_worker: options.GpusOption = None,
    worker_timeout: options.WorkerTimeoutOption = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Go on with a run that was stopped; it ends as if it had never been. A finished run is only printed.

    Example: `macro resume runs/category-smollm2-135m-quick-0`
    """
    options.need_models_extra()
    options.quiet_libraries()
    crew = options.worker_settings(backend, workers, address, gpus_per_worker, worker_timeout)
    from macro_routing.cli.progress import listener_for
    from macro_routing.cli.stopping import stoppable
    from macro_routing.report import write_report
    from macro_routing.runs.folder import RunFolder
    from macro_routing.runs.prepare import resume_run

    # A finished run is only read, so it may lie where nothing can be written.
    is_finished = RunFolder.open(run).is_finished and (run / "report.html").is_file()
    options.tell_changes(run)
    with listener_for(run, log_to or []) as listener, stoppable(run):
        result = resume_run(run, listener=listener, store=store, workers=crew)
        page = run / "report.html" if is_finished else write_report(run)
    print_result(result, page, as_json=as_json)
