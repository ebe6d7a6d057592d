"""``macro demo``: a whole search on the built-in model and a shipped task, in minutes on a CPU."""

from pathlib import Path
from typing import Annotated

import typer

from macro_routing.cli.console import check_and_quiet_model_libraries
from macro_routing.cli.search import find_free_folder, search_and_report
from macro_routing.models.built_in import DEFAULT_MODEL
from macro_routing.runs.config import make_run_config

TASK, SEED = "category", 1
"""The task was picked on other seeds (docs/data/short_tasks.json)."""
_NEXT_STEPS = """
Now your own model and data:
  macro search --model YOUR/MODEL --task mine.csv --question ask --answer right --choices right,wrong1,wrong2
--dry-run says how long it takes and the smallest gain that its data can show."""


def demo(
    out: Annotated[Path | None, typer.Option(help="The run's folder.", show_default="runs/demo")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search a better layer order for a small model on a small task, and write the report.

    Fetches the built-in model (98 MB) the first time; later runs need no network.

    Example: `macro demo`
    """
    check_and_quiet_model_libraries()
    config = make_run_config(TASK, DEFAULT_MODEL, "quick", seed=SEED)
    search_and_report(config, out or find_free_folder("demo"), None, [], as_json=as_json)
    if not as_json:
        print(_NEXT_STEPS)
