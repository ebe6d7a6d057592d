"""HTML and SVG that cannot be broken out of: whatever is no markup already is escaped where it is put in."""

from __future__ import annotations

import re
from html import escape

_EMPTY = {"meta", "br", "input", "path", "line", "rect", "circle", "polyline", "polygon"}
"""Elements without an end tag; the shapes of SVG close themselves."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What no HTML page may hold, and half characters that no file can."""


class Markup(str):
    """Text that is markup already; everything else is escaped."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element; ``class_`` and ``stroke_width`` are written ``class`` and ``stroke-width``, None leaves one out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _EMPTY and not children:
        return Markup(f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")


def joined(*parts: str | None) -> Markup:
    """Parts one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts if part is not None))


def text(value: object) -> Markup:
    """A value as text."""
    return Markup(escape(_UNPRINTABLE.sub("\ufffd", str(value))))


def _attribute(value: str | float) -> str:
    # A tenth of a pixel is enough for any drawing, and keeps the page small.
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else text(value)
