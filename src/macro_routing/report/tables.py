"""Tables as plain data; the templates draw them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TableCell:
    """A cell that is more than plain text."""

    text: str
    small: str = ""
    """A second line in small letters."""
    kind: str = "text"
    """text, bold, name (bold, with room), route (breaks between steps only), code, remark or link."""
    href: str = ""
    """Where a link leads."""


Row = Sequence[str | TableCell]


@dataclass(frozen=True)
class ReportTable:
    """Columns, rows and what stands out among them."""

    columns: Sequence[str]
    rows: Sequence[Row]
    numbers: Sequence[str] = ()
    """Columns that are aligned to the right."""
    highlighted: int = -1
    """The row that stands out."""
    footer: Row = ()
    """The sums."""


def flatten_mapping(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted name, such as ``space.radius``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten_mapping(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def flatten_settings(values: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings as lines such as ``space.radius``: 5."""
    return {name: _format_setting_value(value) for name, value in flatten_mapping(values).items()}


def _format_setting_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not set" if value is None else str(value)
