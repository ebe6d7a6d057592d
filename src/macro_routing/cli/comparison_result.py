"""How a comparison of methods is shown: its page, and a line per method."""

import dataclasses
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from macro_routing.cli.console import print_json, print_table
from macro_routing.report import write_method_comparison
from macro_routing.runs.comparison_results import (
    MethodRow,
    MethodRun,
    describe_shared_run_settings,
    read_method_runs,
    summarize_methods,
)
from macro_routing.runs.control_comparison import BeyondControl, compare_with_best_control, describe_controls
from macro_routing.runs.result import ORACLE, STANDARD

_WIDTH = 80
_LEGEND = (
    "right: on the test set, ± over seeds; gain: points over the standard pass, with its interval; asked: outcomes;"
    " work: layers × tokens; s: seconds of search; layers: what the result runs. Whoever takes the best line chooses on"
    " test data: intervals are of one line each."
)


@dataclass(frozen=True)
class ComparisonPage:
    """The page of a comparison's folder, which keeps methods of earlier calls."""

    path: Path
    description: str
    runs: int


def write_comparison_page(folder: Path) -> ComparisonPage:
    """Write the page of all runs in a folder."""
    description, runs = describe_shared_run_settings(folder), read_method_runs(folder)
    return ComparisonPage(write_method_comparison(runs, folder / "compare.html", description), description, len(runs))


def print_comparison(runs: Sequence[MethodRun], page: ComparisonPage, *, as_json: bool) -> None:
    """A row per method, and what each adds beyond the best control."""
    rows, beyond = summarize_methods(runs), compare_with_best_control(runs)
    if as_json:
        records = [{**dataclasses.asdict(run), "result": run.result.to_json(), "right": None} for run in runs]
        tables = {
            name: [dataclasses.asdict(row) for row in table] for name, table in (("rows", rows), ("beyond", beyond))
        }
        print_json(
            {"rows": tables["rows"], "beyond_best_control": tables["beyond"], "runs": records, "report": str(page.path)}
        )
        return
    if page.description:
        print(textwrap.fill(page.description, _WIDTH))
    _print_method_table(rows)
    for row in beyond:
        print(textwrap.fill(describe_beyond_control(row), _WIDTH))
    earlier = page.runs - len(runs)
    print(f"report  {page.path}{f' (with {earlier} earlier runs of this folder)' if earlier else ''}")


def _print_method_table(rows: list[MethodRow]) -> None:
    # A terminal is narrow: no lines between columns, and short headings.
    headings = ("", "right %", "gain", "95 %", "asked", "work", "s", "layers")
    print_table(headings, map(_format_method_row, rows), box=None, padding=(0, 1, 0, 0))
    print(textwrap.fill(_LEGEND, _WIDTH))
    if any(row.kind == ORACLE for row in rows):
        print("An oracle knows the answers: it is a bound, not a method.")


def describe_beyond_control(row: BeyondControl) -> str:
    """What a search gains over the best control, with its interval."""
    interval = f"95 % interval {100 * row.low:+.1f} to {100 * row.high:+.1f}"
    return (
        f"{row.name} against the best control by training accuracy, {describe_controls(row)}:"
        f" {100 * row.difference:+.1f} points ({interval}, p = {row.p_value:.2g}, Holm {row.p_holm:.2g})"
    )


def _format_method_row(row: MethodRow) -> list[str]:
    is_reference = row.name == STANDARD
    return [
        row.name,
        f"{100 * row.accuracy:.1f}" + ("" if row.spread is None else f"±{100 * row.spread:.1f}"),
        "" if is_reference else f"{100 * row.difference:+.1f}",
        "" if is_reference else f"{100 * row.low:+.1f} to {100 * row.high:+.1f}",
        f"{row.asked:,.0f}",
        f"{row.work:.2g}",
        f"{row.seconds:.0f}",
        f"{row.layers:.1f}",
    ]
