"""Flags of the commands, made from the options of a run: help, panel, type and default are the fields' own."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from macro_routing.cli.console import read_toml
from macro_routing.errors import SettingsError
from macro_routing.models.frozen import LoadOptions
from macro_routing.runs.config import DataSettings, RunConfig
from macro_routing.runs.options import WORKERS, RunOption, run_options, table_options
from macro_routing.settings import field_options
from macro_routing.workers.worker_settings import WorkerSettings

Tables = dict[str, dict[str, Any]]
"""Values that were given as flags, by table; the top-level ones are under the empty name."""
LOADING = tuple(field_options(LoadOptions))
DATA = tuple(field_options(DataSettings))
DECODING = ("mode", "reasoning_budget", "answer_budget", "by_letter")
EXECUTION = tuple(field_options(WorkerSettings))
OUTPUT_PANEL, EXECUTION_PANEL, SEARCH_PANEL, DATA_PANEL = "Output", "Execution", "Search", "Data"

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="A TOML file with settings of the run; flags override it.", show_default=False),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store", help="Where scores are kept.", show_default="the cache folder", rich_help_panel=EXECUTION_PANEL
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Only print what would be done and how long it takes.", rich_help_panel=EXECUTION_PANEL
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT_PANEL)]


@dataclass(frozen=True)
class Shown:
    """What a command shows, or does, otherwise than the field says."""

    help: str = ""
    default: str = ""
    """What the help shows as default."""
    value: Any = None
    """What the command sets where the flag is not given."""
    required: bool = False
    minimum: int | None = None


def with_run_options(*names: str, **shown: Shown) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options of a run to a command, which gets the values given as its argument ``flags``."""
    chosen = [run_options()[name] for name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def call(**values: Any) -> None:
            command(flags=_gather_tables(chosen, values), **values)

        generated = [_make_parameter(option, shown.get(option.name, Shown())) for option in chosen]
        parameters = [*generated, *(one.replace(kind=one.KEYWORD_ONLY) for one in own if one.name != "flags")]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        return call

    return decorate


def _gather_tables(options: list[RunOption], values: dict[str, Any]) -> Tables:
    """Take the values of ``options`` out of ``values``, by table; those that were not given are left out."""
    tables: Tables = {}
    for option in options:
        if (given := values.pop(option.name, None)) is not None:
            value = option.value_from_flag(given)
            if value is not None:
                tables.setdefault(option.table, {})[option.name] = value
    return tables


def settings_parameters(settings: type) -> list[inspect.Parameter]:
    """The options of a command's own settings; lists are given separated by commas."""
    return [_make_parameter(option, Shown(required=option.is_required)) for option in table_options("", settings)]


def take_settings(settings: type, values: dict[str, Any]) -> Any:
    """Take the values of a command's own settings out of ``values``; those that were not given keep their default."""
    given = {}
    for option in table_options("", settings):
        value = values.pop(option.name)
        if value is not None:
            given[option.name] = option.parse_list(value) if option.is_list else value
    return settings(**given)


def _make_parameter(option: RunOption, shown: Shown) -> inspect.Parameter:
    described = option.option
    info = typer.Option(
        option.declaration,
        help=shown.help or described.help,
        show_default=shown.default or option.shown_default or False,
        rich_help_panel=described.panel,
        metavar=described.metavar or None,
        min=shown.minimum,
    )
    kind = _flag_type(option)
    annotation = Annotated[kind, info] if shown.required else Annotated[kind | None, info]
    default = inspect.Parameter.empty if shown.required else shown.value
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flag_type(option: RunOption) -> Any:
    """The type that typer parses a flag as."""
    if option.is_switch:
        return bool
    if option.option.choices:
        return StrEnum(option.name, {choice: choice for choice in option.option.choices})
    if option.is_list:
        return list[str] if option.is_repeated else str
    return option.type


def make_run_config(flags: Tables, file: Path | None, values: dict[str, Any] | None = None) -> RunConfig:
    """Flags override the file, whose ``values`` may be read already; both override the preset."""
    if values is None:
        values = read_toml(file) if file else {}
    for table, entries in flags.items():
        if table == WORKERS:
            continue
        if not isinstance(values.get(table, {}), Mapping):
            raise SettingsError(f"{file}: {table} must be a table of settings")
        values |= entries if table == "" else {table: {**values.get(table, {}), **entries}}
    return RunConfig.from_tables({"task": "", **values}, str(file) if file else "the flags")


def make_worker_settings(flags: Tables) -> WorkerSettings:
    """Where and with how many workers a command evaluates."""
    return WorkerSettings(**flags.get(WORKERS, {}))


def make_load_options(flags: Tables) -> LoadOptions:
    """How a command loads its model."""
    return LoadOptions(**flags.get("loading", {}))


def parse_names(text: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_seeds(text: str) -> list[int]:
    """Integers separated by commas, each once."""
    try:
        seeds = [int(seed) for seed in parse_names(text)]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingsError(f"--seeds {text} is not allowed: integers separated by commas, each once, such as 1,2,42")
    return seeds
