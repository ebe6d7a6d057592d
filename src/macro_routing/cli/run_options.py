"""Flags of the commands, made from the options of a run: help, panel, type and default are the fields' own."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from macro_routing.cli.console import read_toml
from macro_routing.errors import SettingsError
from macro_routing.models.load_options import LoadOptions
from macro_routing.runs.config import RunConfig
from macro_routing.runs.config_tables import DataSettings
from macro_routing.runs.options import WORKERS, RunOption, collect_run_options, list_settings_class_options
from macro_routing.settings import get_field_options
from macro_routing.workers.worker_settings import WorkerSettings

FlagTables = dict[str, dict[str, Any]]
"""Values that were given as flags, by table; the top-level ones are under the empty name."""
LOADING = tuple(get_field_options(LoadOptions))
DATA = tuple(get_field_options(DataSettings))
DECODING = ("mode", "reasoning_budget", "answer_budget", "by_letter")
EXECUTION = tuple(get_field_options(WorkerSettings))
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
class FlagCustomization:
    """How a command's flag differs from the option of a run that it is made from."""

    help: str = ""
    default: str = ""
    """What the help shows as default."""
    value: Any = None
    """What the command sets where the flag is not given."""
    required: bool = False
    minimum: int | None = None


NO_PRESET = {"quantization": FlagCustomization(default="none")}
"""Of commands that have no preset."""


def with_run_options(
    *names: str, **overrides: FlagCustomization
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options of a run to a command, which gets the values given as its argument ``flags``."""

    def add_options_to_command(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call_with_run_flags(**values: Any) -> None:
            command(flags=pop_run_flags(names, values), **values)

        set_typer_command_parameters(
            call_with_run_flags,
            [*make_run_cli_parameters(names, overrides), *list_declared_parameters(command, "flags")],
        )
        return call_with_run_flags

    return add_options_to_command


def set_typer_command_parameters(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> None:
    """Let typer see these parameters."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def list_declared_parameters(command: Callable[..., None], left_out: str) -> list[inspect.Parameter]:
    """The parameters that a command declares itself, but for one, which typer does not set."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    return [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters if parameter.name != left_out]


def make_run_cli_parameters(
    names: Sequence[str], overrides: Mapping[str, FlagCustomization]
) -> list[inspect.Parameter]:
    """Parameters for options of a run."""
    return [
        _make_flag_parameter(collect_run_options()[name], overrides.get(name, FlagCustomization())) for name in names
    ]


def pop_run_flags(names: Sequence[str], values: dict[str, Any]) -> FlagTables:
    """Take options of a run out of ``values``, by table; those that were not given are left out."""
    tables: FlagTables = {}
    for name in names:
        option, flag = collect_run_options()[name], values.pop(name, None)
        if flag is not None and (value := option.value_from_flag(flag)) is not None:
            tables.setdefault(option.table, {})[name] = value
    return tables


def make_settings_parameters(settings: type) -> list[inspect.Parameter]:
    """Parameters for a command's own settings; lists are given separated by commas."""
    options = list_settings_class_options("", settings)
    return [_make_flag_parameter(option, FlagCustomization(required=option.is_required)) for option in options]


def pop_settings(settings: type, values: dict[str, Any]) -> Any:
    """Take a command's own settings out of ``values``; those that were not given keep their default."""
    given = {option: values.pop(option.name) for option in list_settings_class_options("", settings)}
    return settings(
        **{
            option.name: option.parse_list(value) if option.is_list else value
            for option, value in given.items()
            if value is not None
        }
    )


def _make_flag_parameter(option: RunOption, override: FlagCustomization) -> inspect.Parameter:
    info = typer.Option(
        option.flag_declaration,
        help=override.help or option.option.help,
        show_default=override.default or override.value or option.shown_default or False,
        rich_help_panel=option.option.panel,
        metavar=option.option.metavar or (f"<{'|'.join(choices)}>" if (choices := option.option.choices) else None),
        min=override.minimum,
    )
    kind = _get_flag_type(option)
    annotation = Annotated[kind, info] if override.required else Annotated[kind | None, info]
    default = inspect.Parameter.empty if override.required else override.value
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _get_flag_type(option: RunOption) -> Any:
    """The type that typer parses a flag as."""
    if option.takes_no_value:
        return bool
    if option.option.choices:
        return str  # the settings check it, and know what was meant
    if option.is_list:
        return list[str] if option.table else str  # lists of a command's own settings are separated by commas
    return option.type


def make_run_config(flags: FlagTables, file: Path | None, values: dict[str, Any] | None = None) -> RunConfig:
    """Flags override the file, whose ``values`` may be read already; both override the preset."""
    values = read_toml(file) if values is None else values
    for table, entries in flags.items():
        if table == WORKERS:
            continue
        if not isinstance(values.get(table, {}), Mapping):
            raise SettingsError(f"{file}: {table} must be a table of settings")
        values |= entries if table == "" else {table: {**values.get(table, {}), **entries}}
    return RunConfig.from_toml_tables({"task": "", **values}, str(file) if file else "the flags")


def make_worker_settings(flags: FlagTables) -> WorkerSettings:
    """Where and with how many workers a command evaluates."""
    return WorkerSettings(**flags.get(WORKERS, {}))


def make_load_options_from_flags(flags: FlagTables) -> LoadOptions:
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
