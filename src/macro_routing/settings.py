"""Frozen settings from plain mappings: unknown keys are rejected, values are checked by type.

Every settings dataclass of the project documents its fields in place and validates itself in ``__post_init__``, by
``CheckedSettings`` or with the checks below, so that Python callers and TOML files meet the same rules. A field made
with ``option`` is also a flag of the commands: its help, its flag and its panel stand beside it and nowhere else.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from macro_routing.errors import SettingsError, shorten_value, suggest_name

Settings = TypeVar("Settings")
_OPTION = "option"
_LARGEST = 1e300
"""The largest number of a setting; NaN, infinity and integers beyond floating point are rejected."""


@dataclass(frozen=True)
class Option:
    """How a settings field appears on the command line and in its documentation."""

    help: str
    panel: str
    """Heading of the group of options it is listed under."""
    flag: str = ""
    """``--name`` or ``--name/--no-name``; empty: the field's name."""
    choices: tuple[str, ...] = ()
    """Allowed values; empty: the field's own check decides."""
    shown_default: str = ""
    """What the help shows as default; empty: the field's default."""
    flag_value: Any = None
    """A flag without an argument sets the field to this value."""
    metavar: str = ""


def option(default: Any, help: str, panel: str, **more: Any) -> Any:  # noqa: A002
    """A dataclass field with a default that is also a command-line option."""
    return dataclasses.field(default=default, metadata={_OPTION: Option(help, panel, **more)})


def get_field_options(settings: type) -> dict[str, Option]:
    """The options of a settings dataclass by field name; fields without one are for Python and TOML files only."""
    fields = dataclasses.fields(settings)
    return {field.name: field.metadata[_OPTION] for field in fields if _OPTION in field.metadata}


def build_settings(settings: type[Settings], values: Mapping[str, Any], source: str) -> Settings:
    """Build the dataclass ``settings`` from ``values``; errors name ``source``."""
    names = [field.name for field in dataclasses.fields(settings)]  # type: ignore[arg-type]
    check_known_keys(values, names, source)
    try:
        return settings(**values)
    except TypeError as error:
        raise SettingsError(f"{source}: {error}") from None


def check_known_keys(values: Mapping[str, Any], known: list[str], source: str) -> None:
    """Reject a key that is not known, with a suggestion."""
    for name in values:
        if name not in known:
            hint = suggest_name(str(name), known)
            raise SettingsError(f"{source}: unknown key {shorten_value(name)}; known keys: {', '.join(known)}{hint}")


@dataclass(frozen=True)
class AllowedRange:
    """The allowed values of a numeric field."""

    minimum: float
    maximum: float = math.inf
    exclusive: bool = False
    """Whether the minimum itself is not allowed."""
    symbol: str = ""
    """The paper's symbol, for error messages."""


class CheckedSettings:
    """Base class of settings whose numbers have a range: ``draws: Annotated[int, AllowedRange(1)] = 30``."""

    def __post_init__(self) -> None:
        """Check numeric fields against their ranges, and that boolean fields hold booleans.

        An integer in a float field becomes a float: 1 and 1.0 are one setting.
        """
        settings: Any = type(self)  # mypy takes a class for its instances, which need not be hashable
        for name, kind, ranges in _list_typed_fields(settings):
            value = getattr(self, name)
            if kind is bool:
                check_boolean(name, value)
            for allowed in ranges:
                _check_range(f"{name} ({allowed.symbol})" if allowed.symbol else name, value, allowed, kind)
                object.__setattr__(self, name, value if kind is int else float(value))


@functools.cache
def _list_typed_fields(settings: type) -> list[tuple[str, object, list[AllowedRange]]]:
    """Name, type and ranges of every annotated field; to evaluate annotations takes longer than the checks."""
    hints = get_type_hints(settings, include_extras=True)
    parts = {name: get_args(hint) if get_origin(hint) is Annotated else (hint,) for name, hint in hints.items()}
    return [(name, kind, ranges) for name, (kind, *ranges) in parts.items()]


def _check_range(name: str, value: object, allowed: AllowedRange, kind: object) -> None:
    if kind is int:
        maximum = None if allowed.maximum == math.inf else int(allowed.maximum)
        check_integer(name, value, minimum=int(allowed.minimum), maximum=maximum)
    else:
        check_number(name, value, minimum=allowed.minimum, maximum=allowed.maximum, exclusive=allowed.exclusive)


def check_integer(name: str, value: object, *, minimum: int, maximum: int | None = None) -> None:
    """Reject ``value`` unless it is an integer within the bounds."""
    allowed = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or value < minimum or (maximum is not None and value > maximum):  # type: ignore[operator]
        raise SettingsError(f"{name} = {shorten_value(value)} is not allowed: it must be {allowed}")


def check_number(
    name: str, value: object, *, minimum: float, maximum: float = math.inf, exclusive: bool = False
) -> None:
    """Reject ``value`` unless it is a finite number in [minimum, maximum], or in (minimum, maximum] when exclusive."""
    allowed = f"a number {'above' if exclusive else 'of at least'} {minimum:g}"
    is_finite = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
    if maximum < math.inf or (isinstance(value, int | float) and not is_finite):
        allowed += f" and at most {min(maximum, _LARGEST):g}"
    if not is_finite or not minimum <= value <= maximum or (exclusive and value == minimum):  # type: ignore[operator]
        raise SettingsError(f"{name} = {shorten_value(value)} is not allowed: it must be {allowed}")


def check_seed(seed: int) -> None:
    """Reject seeds that do not fit one word of the name of a random stream, where two streams could become one."""
    check_integer("seed", seed, minimum=0, maximum=2**32 - 1)


def check_boolean(name: str, value: object) -> None:
    """Reject ``value`` unless it is true or false."""
    if not isinstance(value, bool):
        raise SettingsError(f"{name} = {shorten_value(value)} is not allowed: it must be true or false")


def check_string(name: str, value: object) -> None:
    """Reject ``value`` unless it is a string or None."""
    if not isinstance(value, str | None):
        raise SettingsError(f"{name} = {shorten_value(value)} is not allowed: it must be a string")


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Reject ``value`` unless it is one of ``allowed``."""
    if value not in allowed:
        hint = suggest_name(str(value), allowed)
        raise SettingsError(
            f"{name} = {shorten_value(value)} is not allowed: it must be one of {', '.join(allowed)}{hint}"
        )
