"""``macro report``: a run's page, made again from its folder; a page that compares runs; their figures."""

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli.console import print_progress_message
from macro_routing.cli.progress import warn_of_modified_run_files

COMPARISON = Path("comparison.html")


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; several are compared.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where the page goes.", show_default=f"RUN/report.html; {COMPARISON} for several"
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="A folder for the figures as SVG, PNG and PDF files.", show_default="none are written"),
    ] = None,
) -> None:
    """Write a run's report as one HTML page that needs nothing else; also of a run that is not finished.

    Of several runs, a page that compares them. Examples: `macro report runs/first`,
    `macro report runs/first runs/second --output both.html`, `macro report runs/first --figures pictures`
    """
    from macro_routing.report import write_figures, write_report, write_run_comparison

    page = write_report(runs[0], output) if len(runs) == 1 else write_run_comparison(runs, output or COMPARISON)
    print(page)
    for run in runs:
        warn_of_modified_run_files(run)
    if figures is not None:
        for path in write_figures(runs, figures, print_progress_message):
            print(path)
