"""``macro resume``: go on with a run that was stopped."""

from pathlib import Path
from typing import Annotated

import typer

from macro_routing import runs
from macro_routing.cli.console import check_and_quiet_model_libraries
from macro_routing.cli.progress import make_progress_listener, warn_of_modified_run_files
from macro_routing.cli.run_options import (
    EXECUTION,
    EXECUTION_PANEL,
    OUTPUT_PANEL,
    FlagTables,
    JsonOption,
    make_worker_settings,
    with_run_options,
)
from macro_routing.cli.stopping import make_store_flags, stop_with_resume_hint
from macro_routing.runs.folder import REPORT, RunFolder
from macro_routing.runs.trusted_code import TRUST_GRADER, TRUST_REMOTE_CODE


@with_run_options(*EXECUTION)
def resume(
    flags: FlagTables,
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    store: Annotated[
        Path | None,
        typer.Option(help="Where scores are kept.", show_default="where it began", rich_help_panel=EXECUTION_PANEL),
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(help="Also log to tensorboard, wandb or trackio; may be repeated.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            TRUST_REMOTE_CODE,
            help="Allow code that comes with the run's model to run.",
            rich_help_panel=EXECUTION_PANEL,
        ),
    ] = False,
    trust_grader: Annotated[
        bool,
        typer.Option(
            TRUST_GRADER, help="Allow the grader of the run's task file to run.", rich_help_panel=EXECUTION_PANEL
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Continue a run that was stopped; the result is the same as without the stop. A finished run is only printed.

    Example: `macro resume runs/category-smollm2-135m-quick-0`
    """
    from macro_routing.cli.run_result import print_run_result
    from macro_routing.report import write_report

    check_and_quiet_model_libraries()
    workers = make_worker_settings(flags)
    # A finished run is only read, so it may lie where nothing can be written.
    is_finished = RunFolder.open(run).is_finished and (run / REPORT).is_file()
    warn_of_modified_run_files(run)
    trusted = {TRUST_REMOTE_CODE: trust_remote_code, TRUST_GRADER: trust_grader}
    flags_again = [*(flag for flag, is_given in trusted.items() if is_given), *make_store_flags(store)]
    with make_progress_listener(run, log_to or []) as listener, stop_with_resume_hint(run, flags_again):
        result = runs.resume_run(
            run,
            listener=listener,
            store=store,
            workers=workers,
            trust_remote_code=trust_remote_code,
            trust_grader=trust_grader,
        )
        page = run / REPORT if is_finished else write_report(run)
    print_run_result(result, page, as_json=as_json)
