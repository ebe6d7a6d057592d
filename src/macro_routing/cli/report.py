"""``macro report``: a run's page, made again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the page goes.", show_default="RUN/report.html")
    ] = None,
) -> None:
    """Write a run's report as one HTML page that needs nothing else; also of a run that is not finished.

    Example: `macro report runs/category-smollm2-135m-quick-0`
    """
    from macro_routing.report import write_report

    print(write_report(run, output))
