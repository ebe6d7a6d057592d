"""``macro demo``: a whole search on the built-in model and a shipped task, in minutes on a CPU."""

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli import options
from macro_routing.models.catalog import DEFAULT_MODEL

TASK, SEED = "category", 1
"""The task was picked on other seeds (docs/data/short_tasks.json)."""


def demo(
    out: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/demo")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search a better layer order for a small model on a small task, and write the report.

    Fetches the built-in model (98 MB) the first time; later runs need no network.

    Example: `macro demo`
    """
    options.require_models_extra()
    options.quiet_libraries()
    from macro_routing.cli.search import search_and_report
    from macro_routing.runs.config import make_config

    config = make_config(TASK, DEFAULT_MODEL, "quick", seed=SEED)
    search_and_report(config, out or _find_free_folder(), None, [], as_json=as_json)
    if not as_json:
        print("\nNow your own model and data:")
        print("  macro search --model YOUR/MODEL --task sciq --preset quick")
        print(
            "  macro search --task mine.csv --question ask --answer right --choices right,wrong1,wrong2 --preset quick"
        )


def _find_free_folder() -> Path:
    path, number = Path("runs/demo"), 2
    while path.exists():
        path, number = Path(f"runs/demo.{number}"), number + 1
    return path
