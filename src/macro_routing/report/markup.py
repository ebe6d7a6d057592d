"""SVG elements as text: whatever is not markup already is escaped where it is put in."""

import re
from html import escape

from markupsafe import Markup

_EMPTY = {"path", "line", "rect", "circle", "polyline", "polygon"}
"""Elements that close themselves."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that are not allowed in HTML, and surrogates that UTF-8 cannot encode."""


def trust_markup(text: str) -> Markup:
    """Text of our own making that is markup already."""
    return Markup(text)  # noqa: S704 this is the one place


def svg_element(tag: str, *children: str | None, **attributes: str | float | None) -> Markup:
    """An element; ``class_`` and ``stroke_width`` are written ``class`` and ``stroke-width``, None leaves one out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_format_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _EMPTY and not children:
        return trust_markup(f"<{tag}{written}/>")
    return trust_markup(f"<{tag}{written}>{join_markup(*children)}</{tag}>")


def join_markup(*parts: str | None) -> Markup:
    """Concatenate parts; plain text is escaped."""
    texts = (part if isinstance(part, Markup) else _escape_text(part) for part in parts if part is not None)
    return trust_markup("".join(texts))


def replace_unprintable(text: str) -> str:
    """The text with characters that no page may contain replaced."""
    return _UNPRINTABLE.sub("\ufffd", text)


def _escape_text(value: object) -> str:
    return escape(replace_unprintable(str(value)))


def _format_attribute(value: str | float) -> str:
    # A tenth of a pixel is enough for any drawing, and keeps the page small.
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else _escape_text(value)
