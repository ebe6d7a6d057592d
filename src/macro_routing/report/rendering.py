"""Pages from the templates beside this file: what a model wrote is escaped, and only the page's own script may run."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from macro_routing.errors import RunError
from macro_routing.files import describe_os_error, write_atomically
from macro_routing.report.formatting import (
    format_count,
    format_duration,
    format_percent,
    format_points,
    format_points_interval,
    use_minus_in_sentence,
    use_minus_sign,
)
from macro_routing.report.style import get_cell_text_class, get_shade_class, make_page_css, read_template_asset
from macro_routing.report.tables import ReportTable

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that are not allowed in HTML, and surrogates that UTF-8 cannot encode."""
_FILTERS = (
    *(format_count, format_duration, format_percent, format_points, format_points_interval),
    *(use_minus_in_sentence, use_minus_sign, get_shade_class, get_cell_text_class),
)


@cache
def _make_jinja_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("macro_routing.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_round_or_strip_unprintable,
    )
    environment.filters |= {function.__name__: function for function in _FILTERS}
    return environment


def _round_or_strip_unprintable(value: Any) -> Any:
    """Text without characters that no page may contain; numbers to a tenth of a pixel, enough for any drawing."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return _UNPRINTABLE.sub("\ufffd", value) if isinstance(value, str) and not isinstance(value, Markup) else value


def mark_safe(text: str) -> Markup:
    """Text of our own making that is markup already."""
    return Markup(text)  # noqa: S704 this is the one place


def render_template(name: str, **view: Any) -> Markup:
    """Fill the template ``name`` with plain data."""
    return mark_safe(_make_jinja_environment().get_template(name).render(view).strip())


def render_page(name: str, title: str, sections: Mapping[str, Markup], **view: Any) -> str:
    """A whole page that needs no other file."""
    script = read_template_asset("answers.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    files = {"css": mark_safe(make_page_css()), "script": mark_safe(script), "script_digest": digest}
    return str(render_template(name, title=title, sections=sections, **files, **view))


def render_table(table: ReportTable, notes: Sequence[str] = (), figure: Any = None) -> Markup:
    """A table with notes below it and, above it, a figure."""
    return render_template("table.html", table=table, notes=notes, figure=figure)


def render_paragraphs(*texts: str) -> Markup:
    """Plain text."""
    return render_template("paragraphs.html", texts=texts)


def write_output_file(path: Path, contents: str | bytes) -> None:
    """Write a file of the user's choice atomically; an error names it."""
    try:
        write_atomically(path, contents)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {describe_os_error(error)}; name another place") from None
