"""A whole page: its head, what it may do, and how it is put on disk."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from macro_routing.errors import RunError
from macro_routing.files import describe_os_error, write_atomically
from macro_routing.report.markup import Markup, element
from macro_routing.report.style import PAGE_CSS

# Answers are searched for words; everything else works without a script.
_SCRIPT = """
for (const box of document.querySelectorAll('.answers')) {
  const field = box.querySelector('input[type=search]');
  const told = box.querySelector('output');
  const answers = [...box.querySelectorAll('.answer')].map((one) => [one, one.textContent.toLowerCase()]);
  field.parentElement.hidden = false;
  field.addEventListener('input', () => {
    const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let found = 0;
    for (const [one, text] of answers) {
      one.hidden = !words.every((word) => text.includes(word));
      found += !one.hidden;
    }
    told.textContent = words.length ? ` ${found} found` : '';
  });
}
"""
_DIGEST = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_NOTHING_FOREIGN = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
)
"""Nothing from elsewhere and no script but the one above, whatever a model wrote."""


def document(title: str, *body: Markup | None) -> str:
    """A page that needs nothing else."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_FOREIGN}"/>'),
        element("title", f"{title} – MACRO"),
        element("style", Markup(PAGE_CSS)),
    )
    written = element("body", element("main", *body), element("script", Markup(_SCRIPT)))
    return f"<!DOCTYPE html>\n{element('html', head, written, lang='en')}\n"


def section(title: str, *contents: Markup | None) -> Markup:
    """A part of the page that can be gone to."""
    return element("section", element("h2", title), *contents, id=_anchor(title))


def contents_list(titles: list[str]) -> Markup:
    """Where to go."""
    return element("nav", *[element("a", title, href=f"#{_anchor(title)}") for title in titles])


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def write_file(path: Path, text: str | bytes) -> None:
    """Write a file whole or not at all."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {describe_os_error(error)}; name another place") from None
