"""Every option of a run, gathered from the fields of its settings; none needs torch.

The commands make their flags of these, the report its reproduce command.
"""

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from macro_routing.errors import SettingsError
from macro_routing.runs.config import RunConfig
from macro_routing.runs.methods import METHODS
from macro_routing.settings import Option, get_field_options
from macro_routing.workers.worker_settings import WorkerSettings

CONFIG_FILE = "run.toml"
WORKERS = "workers"
"""The table of execution options; it is not part of a configuration."""
_NUMBERS = {int: "integers", float: "numbers"}
_ALWAYS_SHOWN = ("task", "model", "preset", "method", "seed")


@dataclass(frozen=True)
class RunOption:
    """One option of a run: a field of its configuration that is also a flag."""

    table: str
    """Empty for a top-level value."""
    name: str
    type: Any
    default: Any
    option: Option

    @property
    def command_line_flag(self) -> str:
        """As it is typed; of a pair the one that switches it on."""
        return self.flag_declaration.partition("/")[0]

    @property
    def flag_declaration(self) -> str:
        """The flag, or both flags of a pair."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"

    @property
    def takes_no_value(self) -> bool:
        """Whether the flag takes no argument."""
        return self.type is bool or self.option.flag_value is not None

    @property
    def is_list(self) -> bool:
        """Whether the field holds several values."""
        return get_origin(self.type) is tuple

    @property
    def is_required(self) -> bool:
        """Whether the field has no default."""
        return self.default is dataclasses.MISSING

    @property
    def shown_default(self) -> str:
        """What the help shows where nothing is given."""
        has_none = self.is_required or self.takes_no_value or self.default is None or self.default in ("", ())
        if self.option.shown_default or has_none:
            return self.option.shown_default
        return ",".join(map(str, self.default)) if self.is_list else str(self.default)

    def parse_list(self, text: str) -> tuple[Any, ...]:
        """The values of a list that is given separated by commas."""
        kind = get_args(self.type)[0]
        parse = kind if kind in (int, float, str) else parse_untyped_value
        try:
            return tuple(parse(value.strip()) for value in text.split(",") if value.strip())
        except ValueError:
            raise SettingsError(
                f"{self.command_line_flag} {text} is not allowed: {_NUMBERS[kind]} separated by commas, such as"
                f" {self.shown_default}"
            ) from None

    def value_from_flag(self, value: Any) -> Any:
        """The field's value from what the command line gives."""
        if self.option.flag_value is not None:
            return self.option.flag_value if value else None
        return value

    def to_command_words(self, value: Any) -> list[str] | None:
        """The words of a command line that set this value; None where no flag does."""
        if isinstance(value, list | tuple):
            return [word for item in value for word in (self.command_line_flag, str(item))]
        if not self.takes_no_value:
            return (
                [f"{self.command_line_flag}={value}"]
                if str(value).startswith("-")
                else [self.command_line_flag, str(value)]
            )
        if value == (True if self.option.flag_value is None else self.option.flag_value):
            return [self.command_line_flag]
        _, slash, off = self.flag_declaration.partition("/")
        return [off] if slash and value is False else None


@cache
def collect_run_options() -> dict[str, RunOption]:
    """All options by name; a setting that several search methods share is one option."""
    tables = [("", RunConfig), *RunConfig.TABLES.items(), *(("search", method.settings) for method in METHODS.values())]
    options: dict[str, RunOption] = {}
    for table, settings in [*tables, (WORKERS, WorkerSettings)]:
        for option in list_settings_class_options(table, settings):
            options.setdefault(option.name, option)
    return options


def list_settings_class_options(table: str, settings: type) -> Iterator[RunOption]:
    """The options of one settings dataclass."""
    types, defaults = get_type_hints(settings), {field.name: field.default for field in dataclasses.fields(settings)}
    for name, option in get_field_options(settings).items():
        yield RunOption(table, name, _strip_none_from_type(types[name]), defaults[name], option)


def parse_untyped_value(text: str) -> float | int | str | bool:
    """A value whose type is not known: an integer, a number, true or false, else a string."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _strip_none_from_type(annotation: Any) -> Any:
    """The type of a value that is given: ``str`` of ``str | None``."""
    alternatives = [alternative for alternative in getattr(annotation, "__args__", ()) if alternative is not type(None)]
    return alternatives[0] if len(alternatives) == 1 else annotation


# --- the command that reproduces a run --------------------------------------------------------------------------------


def format_search_command(tables: Mapping[str, Any]) -> str:
    """The command that starts the same run again; where a value has no flag, all of them come in a file."""
    words: list[str] = []
    for option, value in _list_given_values(tables):
        flags = None if option is None else option.to_command_words(value)
        if flags is None:
            return f"macro search --config {CONFIG_FILE}"
        words += flags
    return shlex.join(["macro", "search", *words])


def _list_given_values(tables: Mapping[str, Any]) -> Iterator[tuple[RunOption | None, Any]]:
    """Every value that was given, with its option; None where it has none."""
    options = collect_run_options()
    for name, value in tables.items():
        if isinstance(value, Mapping):
            for key, entry in value.items():
                option = options.get(key)
                if entry is not None:
                    yield (option if option is not None and option.table == name else None), entry
        elif name in options and (name in _ALWAYS_SHOWN or value != options[name].default):
            yield options[name], value


def format_config_as_toml(tables: Mapping[str, Any]) -> str:
    """The configuration as the file that gives the same one; what was not set is left out."""
    lines = _format_toml_lines(tables)
    for name, table in tables.items():
        if isinstance(table, Mapping) and table:
            lines += ["", f"[{name}]", *_format_toml_lines(table)]
    return "\n".join(lines)


def _format_toml_lines(values: Mapping[str, Any]) -> list[str]:
    plain = {name: value for name, value in values.items() if value is not None and not isinstance(value, Mapping)}
    # JSON writes strings, numbers, booleans and lists of them as TOML does, but for one character.
    texts = {name: json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") for name, value in plain.items()}
    return [f"{name} = {text}" for name, text in texts.items()]
