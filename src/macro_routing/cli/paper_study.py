"""``macro study paper``: every table and figure of the paper from one configuration."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from macro_routing.cli.console import check_and_quiet_model_libraries, print_fields, print_json, read_toml
from macro_routing.cli.progress import make_progress_listener
from macro_routing.cli.run_options import EXECUTION_PANEL, OUTPUT_PANEL, JsonOption, parse_names
from macro_routing.cli.stopping import show_hint_on_interrupt
from macro_routing.cli.study_command import check_minutes_option, print_study_table
from macro_routing.errors import PAUSED, SettingsError

if TYPE_CHECKING:
    from macro_routing.studies.paper import PaperSession


def paper(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="A TOML file.", show_default="the paper's, examples/paper.toml"),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of all studies.", rich_help_panel=OUTPUT_PANEL)] = Path(
        "studies/paper"
    ),
    items: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Run only these items of the file, separated by commas, such as main-table,llama.",
            show_default="all",
            rich_help_panel=EXECUTION_PANEL,
        ),
    ] = None,
    part: Annotated[
        str,
        typer.Option(
            metavar="I/N",
            help="Run only the I-th of N parts of about equal estimated time, each on another machine; copy their"
            " folders into one at the end.",
            rich_help_panel=EXECUTION_PANEL,
        ),
    ] = "1/1",
    model_dir: Annotated[
        Path | None,
        typer.Option(help="A folder that holds models by the last part of their names.", show_default=False),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Begin no further part after N minutes; the same command continues.",
            callback=check_minutes_option,
            rich_help_panel=EXECUTION_PANEL,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only list the items with their models and benchmarks, what is done, and about how many GPU-hours are"
            " left; no model is loaded.",
            rich_help_panel=EXECUTION_PANEL,
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run every table and figure of the paper, and gather what is done.

    Finished runs are left alone and stopped ones continue. What cannot be run is named, such as a model that is not
    there, and the rest continues.

    Example: `macro study paper --dry-run`
    """
    check_and_quiet_model_libraries()
    from macro_routing.studies.paper import PaperSession
    from macro_routing.studies.paper_config import list_units, read_paper_config
    from macro_routing.studies.paper_estimate import divide_units

    settings = read_paper_config(read_toml(config or find_own_config()), model_dir)
    if items is not None:
        settings = settings.select_items(parse_names(items))
    index, parts = _parse_part(part)
    session = PaperSession(settings, out, minutes=minutes)
    if dry_run:
        _print_items(session, as_json=as_json, is_plan=True)
        return
    with (
        make_progress_listener(out, []) as listener,
        show_hint_on_interrupt("the same command continues where it was"),
    ):
        session.listener = listener
        is_over = session.run_units(divide_units(settings, list_units(settings), parts)[index - 1])
        session.gather()
    _print_items(session, as_json=as_json)
    if not is_over:
        raise typer.Exit(PAUSED)
    if session.failures:
        raise typer.Exit(1)


def find_own_config() -> Path:
    """The paper's configuration: in an installed package a copy of it, in a checkout the file in examples."""
    package = Path(__file__).parents[1]
    for path in (package / "paper.toml", package.parents[1] / "examples" / "paper.toml"):
        if path.is_file():
            return path
    raise SettingsError("the paper's configuration is not installed: name a file, such as examples/paper.toml")


def _parse_part(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    index, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= parts:
        raise SettingsError(f"--part {text} is not allowed: it must be I/N with I from 1 to N, such as 2/4")
    return index, parts


def _print_items(session: "PaperSession", *, as_json: bool, is_plan: bool = False) -> None:
    result = session.list_items()
    if as_json:
        print_json({"headline": result.headline, "items": list(result.table.rows), "notes": list(result.table.notes)})
        return
    columns = [column for column in result.table.columns if column.is_number or column.heading == "item"]
    print_study_table(columns, result.table.rows)
    for row in result.table.rows if is_plan else ():
        seeds = ", ".join(map(str, row["seeds_of_item"]))
        print(f"{row['item']}: {row['models_of_item']}; {row['benchmarks_of_item']}; seeds {seeds}")
    for row in result.table.rows:
        if row["note"]:
            print(f"{row['item']}: {row['note']}")
    print(result.headline)
    hours = [row["expected_hours"] for row in result.table.rows]
    if None not in hours:
        print(f"GPU-hours left, about: {sum(hours):.1f}")
    for note in result.table.notes:
        print(note)
    print_fields([("folder", str(session.out))])
