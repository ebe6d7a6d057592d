"""``macro compare``: several methods on one model and task, at one budget."""

from pathlib import Path
from typing import Annotated, Any

import typer

from macro_routing.cli.console import (
    check_and_quiet_model_libraries,
    print_progress_message,
    read_toml,
)
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
from macro_routing.runs.methods import NO_AMATEUR, check_requested_methods_comparable, keep_settings_of_method
from macro_routing.search.method_names import CONTRASTIVE, METHOD_NAMES

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

    After a stop the same command continues where it was. Every method and seed is a run of its own, with a report.

    Example: `macro compare --task category --preset quick --methods guided,macro,random,rys --seeds 1,2`

    Own data: `macro compare --task mine.csv --question ask --answer right --choices right,wrong1,wrong2 --preset quick`
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
        from macro_routing.cli.plan import print_comparison_plan

        print_comparison_plan(base, names, numbers, out, search, store, as_json=as_json)
        return
    from macro_routing.cli.comparison_result import print_comparison, write_comparison_page
    from macro_routing.report import write_report
    from macro_routing.runs.compare_methods import compare_methods

    with make_progress_listener(out, []) as listener, show_hint_on_interrupt("the same command continues where it was"):
        method_runs = compare_methods(
            base, names, numbers, out, search=search, listener=listener, store=store, workers=workers
        )
        for run in method_runs:
            write_report(out / f"{run.method}-{run.seed}")
        page = write_comparison_page(out)
    print_comparison(method_runs, page, as_json=as_json)


def _check_search_table(values: Any, names: list[str], file: Path | None) -> dict[str, Any]:
    """The file's settings of searches; each must be known to one of the methods at least."""
    if not isinstance(values, dict):
        raise SettingsError(f"{file}: search must be a table of settings")
    for key, value in values.items():
        if not any(keep_settings_of_method(name, {key: value}) for name in names):
            raise SettingsError(f"{file}: [search] {key} is known to none of {', '.join(names)}")
    return values
