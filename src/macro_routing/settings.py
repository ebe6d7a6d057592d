"""Frozen settings from plain mappings: unknown keys are refused by name, values are checked by type.

Every settings dataclass of the project documents its fields in place and validates itself in
``__post_init__`` with the checks below, so that Python callers and TOML files meet the same rules.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from macro_routing.errors import SettingsError, shorten, suggestion

Settings = TypeVar("Settings")
_LARGEST = 1e300
"""No setting is larger; NaN, infinity and integers beyond floating point are not either."""


def from_mapping(kind: type[Settings], values: Mapping[str, Any], where: str) -> Settings:
    """Build the settings dataclass ``kind`` from ``values``; ``where`` names their source in errors."""
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            hint = suggestion(str(name), fields)
            raise SettingsError(f"{where}: unknown key {shorten(name)}; known keys: {', '.join(fields)}{hint}")
    try:
        return kind(**values)
    except TypeError as error:
        raise SettingsError(f"{where}: {error}") from None


def check_integer(name: str, value: object, *, least: int, most: int | None = None) -> None:
    """Refuse ``value`` unless it is an integer within the bounds."""
    allowed = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        raise SettingsError(f"{name} = {shorten(value)} is not allowed: it must be {allowed}")


def check_number(name: str, value: object, *, least: float, most: float = math.inf, above: bool = False) -> None:
    """Refuse ``value`` unless it is a finite number in [least, most], or in (least, most] when ``above``."""
    allowed = f"a number {'above' if above else 'of at least'} {least:g}"
    sound = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST
    if most < math.inf or (isinstance(value, int | float) and not sound):
        allowed += f" and at most {min(most, _LARGEST):g}"
    if not sound or not least <= value <= most or (above and value == least):  # type: ignore[operator]
        raise SettingsError(f"{name} = {shorten(value)} is not allowed: it must be {allowed}")


def check_switch(name: str, value: object) -> None:
    """Refuse ``value`` unless it is true or false."""
    if not isinstance(value, bool):
        raise SettingsError(f"{name} = {shorten(value)} is not allowed: it must be true or false")


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse ``value`` unless it is one of ``allowed``."""
    if value not in allowed:
        hint = suggestion(str(value), allowed)
        raise SettingsError(f"{name} = {shorten(value)} is not allowed: it must be one of {', '.join(allowed)}{hint}")
