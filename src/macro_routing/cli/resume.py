"""``macro resume``: go on with a run that was stopped."""

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli.run_options import (
    EXECUTION,
    EXECUTION_PANEL,
    OUTPUT_PANEL,
    JsonOption,
    Tables,
    make_worker_settings,
    with_run_options,
)
from macro_routing.cli.search import print_result


@with_run_options(*EXECUTION)
def resume(
    flags: Tables,
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    store: Annotated[
        Path | None,
        typer.Option(help="Where scores are kept.", show_default="where it began", rich_help_panel=EXECUTION_PANEL),
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(help="Also log to tensorboard, wandb or trackio; may be repeated.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a run that was stopped; it ends as if it had never been. A finished run is only printed.

    Example: `macro resume runs/category-smollm2-135m-quick-0`
    """
    options.require_models_extra()
    options.quiet_libraries()
    workers = make_worker_settings(flags)
    from macro_routing.cli.progress import make_listener
    from macro_routing.cli.stopping import stop_with_resume_hint
    from macro_routing.report import write_report
    from macro_routing.runs.folder import RunFolder
    from macro_routing.runs.prepare import resume_run

    # A finished run is only read, so it may lie where nothing can be written.
    is_finished = RunFolder.open(run).is_finished and (run / "report.html").is_file()
    options.report_changed_files(run)
    with make_listener(run, log_to or []) as listener, stop_with_resume_hint(run):
        result = resume_run(run, listener=listener, store=store, workers=workers)
        page = run / "report.html" if is_finished else write_report(run)
    print_result(result, page, as_json=as_json)
