"""Tables that scroll in a box of their own, so that the page never does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from macro_routing.report.markup import Markup, element

Row = Sequence[str]


def table(
    columns: Sequence[str], rows: Sequence[Row], *, numbers: Sequence[str] = (), chosen: int = -1, last: Row = ()
) -> Markup:
    """A table; ``numbers`` are columns set to the right, ``chosen`` the row that stands out, ``last`` the sums."""

    def cells(tag: str, row: Row) -> list[Markup]:
        pairs = zip(columns, row, strict=True)
        return [element(tag, cell, class_="number" if name in numbers else None) for name, cell in pairs]

    head = element("thead", element("tr", *cells("th", columns)))
    body = [
        element("tr", *cells("td", row), class_="chosen" if place == chosen else None) for place, row in enumerate(rows)
    ]
    foot = element("tfoot", element("tr", *cells("td", last))) if last else None
    return element("div", element("table", head, element("tbody", *body), foot), class_="scroll", tabindex=0)


def facts(values: Mapping[str, str]) -> Markup:
    """Names and what they are."""
    rows = [element("tr", element("td", name), element("td", value)) for name, value in values.items()]
    return element("div", element("table", element("tbody", *rows), class_="facts"), class_="scroll", tabindex=0)


def flattened(values: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Nested settings as lines such as ``space.radius``: 5."""
    lines: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines.update(flattened(value, f"{before}{name}."))
        elif isinstance(value, list | tuple):
            lines[before + name] = ", ".join(map(str, value)) or "none"
        else:
            lines[before + name] = _setting(value)
    return lines


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not set" if value is None else str(value)


def route_text(route: str) -> Markup:
    """A route that breaks between its steps only."""
    steps = [part for step in route.split() for part in (" ", element("span", step, class_="token"))]
    return element("div", element("code", *steps[1:]), class_="route")


def tile(figure: str, meaning: str) -> Markup:
    """A number that should be seen first."""
    return element("div", element("b", figure), element("span", meaning), class_="tile")
