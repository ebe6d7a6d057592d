"""``macro compare``: several methods on one model and task, at one budget."""

import dataclasses
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from macro_routing.cli.console import (
    check_and_quiet_model_libraries,
    print_json,
    print_progress_message,
    print_table,
    read_toml,
)
from macro_routing.cli.plan import print_comparison_plan
from macro_routing.cli.progress import make_progress_listener
from macro_routing.cli.run_options import (
    DATA,
    DECODING,
    EXECUTION,
    LOADING,
    OUTPUT_PANEL,
    SEARCH_PANEL,
    ConfigOption,
    DryRunOption,
    FlagCustomization,
    FlagTables,
    JsonOption,
    StoreOption,
    make_run_config,
    make_worker_settings,
    parse_names,
    parse_seeds,
    with_run_options,
)
from macro_routing.cli.stopping import show_hint_on_interrupt
from macro_routing.errors import SettingsError
from macro_routing.runs.comparison_results import (
    MethodRow,
    describe_shared_run_settings,
    read_method_runs,
    summarize_methods,
)
from macro_routing.runs.control_comparison import BeyondControl, compare_with_best_control, describe_controls
from macro_routing.runs.methods import NO_AMATEUR, check_requested_methods_comparable, keep_settings_of_method
from macro_routing.runs.result import ORACLE, STANDARD
from macro_routing.search.method_names import CONTRASTIVE, METHOD_NAMES

_WIDTH = 80
_LEGEND = (
    "right: on the test set, ± over seeds; gain: points over the standard pass, with its interval; asked: outcomes;"
    " work: layers × tokens; s: seconds of search; layers: what the result runs. Whoever takes the best line chooses on"
    " test data: intervals are of one line each."
)
DEFAULT_METHODS = "guided,macro,macro-restarts,random,rys,shortgpt,early-exit"


@with_run_options(
    *("task", "model", "preset", "budget", "racing", "decoder"),
    *("objective", "max_error_probability", "price", "margin", "max_cost", "members"),
    *(*DECODING, *DATA, "iterations", "draws", "elite", "k", "max_span", "amateur", *LOADING, *EXECUTION),
    task=FlagCustomization(required=True),
    preset=FlagCustomization(value="default"),
    budget=FlagCustomization(help="Maximum evaluations (route × example) of each search."),
)
def compare(
    flags: FlagTables,
    methods: Annotated[
        str,
        typer.Option(
            help=f"Methods, separated by commas; known: {', '.join(METHOD_NAMES)}.", rich_help_panel=SEARCH_PANEL
        ),
    ] = DEFAULT_METHODS,
    seeds: Annotated[str, typer.Option(help="Seeds, separated by commas.", rich_help_panel=SEARCH_PANEL)] = "1,2,42",
    config: ConfigOption = None,
    store: StoreOption = None,
    dry_run: DryRunOption = False,
    out: Annotated[
        Path,
        typer.Option(help="A folder; each method and seed has a run's folder in it.", rich_help_panel=OUTPUT_PANEL),
    ] = Path("runs/compare"),
    as_json: JsonOption = False,
) -> None:
    """Give several methods the same data and the same budget, over several seeds, and show what each finds.

    Stopped, the same command goes on where it was. Every method and seed is a run of its own, with a report.

    Example: `macro compare --task category --preset quick --methods guided,macro,random,rys --seeds 1,2`

    Your own data: `macro compare --task mine.csv --answer right --choices right,wrong1,wrong2 --preset quick`
    """
    workers = make_worker_settings(flags)
    # The settings of searches are for those that know them, so they are not checked against one method here.
    names, numbers = parse_names(methods), parse_seeds(seeds)
    check_requested_methods_comparable(names, numbers)
    values = read_toml(config)
    search = {**_check_search_table(values.pop("search", {}), names, config), **flags.pop("search", {})}
    if CONTRASTIVE in names and len(names) > 1 and not search.get("amateur"):
        print_progress_message(f"{CONTRASTIVE} is left out: {NO_AMATEUR}")
        names.remove(CONTRASTIVE)
    base = make_run_config(flags, config, values)
    check_and_quiet_model_libraries()
    if dry_run:
        print_comparison_plan(base, names, numbers, out, search, store, as_json=as_json)
        return
    from macro_routing.report import write_method_comparison, write_report
    from macro_routing.runs.compare_methods import compare_methods

    with make_progress_listener(out, []) as listener, show_hint_on_interrupt("the same command goes on where it was"):
        method_runs = compare_methods(
            base, names, numbers, out, search=search, listener=listener, store=store, workers=workers
        )
        for run in method_runs:
            write_report(out / f"{run.method}-{run.seed}")
        description = describe_shared_run_settings(out)
        all_runs = read_method_runs(out)  # earlier methods stay on the page
        page = write_method_comparison(all_runs, out / "compare.html", description)
    rows, beyond = summarize_methods(method_runs), compare_with_best_control(method_runs)
    if as_json:
        records = [{**dataclasses.asdict(run), "result": run.result.to_json(), "right": None} for run in method_runs]
        tables = {
            name: [dataclasses.asdict(row) for row in table] for name, table in (("rows", rows), ("beyond", beyond))
        }
        print_json(
            {"rows": tables["rows"], "beyond_best_control": tables["beyond"], "runs": records, "report": str(page)}
        )
        return
    if description:
        print(textwrap.fill(description, _WIDTH))
    _print_method_table(rows)
    for row in beyond:
        print(textwrap.fill(_describe_beyond_control(row), _WIDTH))
    earlier = len(all_runs) - len(method_runs)
    print(f"report  {page}{f' (with {earlier} earlier runs of this folder)' if earlier else ''}")


def _check_search_table(values: Any, names: list[str], file: Path | None) -> dict[str, Any]:
    """The file's settings of searches; each must be known to one of the methods at least."""
    if not isinstance(values, dict):
        raise SettingsError(f"{file}: search must be a table of settings")
    for key, value in values.items():
        if not any(keep_settings_of_method(name, {key: value}) for name in names):
            raise SettingsError(f"{file}: [search] {key} is known to none of {', '.join(names)}")
    return values


def _print_method_table(rows: list[MethodRow]) -> None:
    # A terminal is narrow: no lines between columns, and short headings.
    headings = ("", "right %", "gain", "95 %", "asked", "work", "s", "layers")
    print_table(headings, map(_format_method_row, rows), box=None, padding=(0, 1, 0, 0))
    print(textwrap.fill(_LEGEND, _WIDTH))
    if any(row.kind == ORACLE for row in rows):
        print("An oracle knows the answers: it is a bound, not a method.")


def _describe_beyond_control(row: BeyondControl) -> str:
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
