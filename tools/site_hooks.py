"""What MkDocs does beyond Markdown: the notebook, the Python API, formulas, and links that leave the documentation."""

import json
import os
import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = "tutorials/from_python"
PAGES_FROM_ROOT = {
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CONTRIBUTING.md": "explanation/contributing.md",
    "CHANGELOG.md": "results/changelog.md",
}
"""Files of the repository's root that are pages of the site."""
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_API = re.compile(r"<!-- api (\S+) -->")
_BLOCK_MATH = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE_MATH = re.compile(r"(?<![\\$`\w])\$([^$\n]+(?:\n[^$\n]+)?)\$(?![\w])")
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_MARKER = re.compile(r"<!-- (?:end|(?:table|value|study|code|results|number) [^>]*?) -->")
"""Around what ``render_docs`` fills in; at the beginning of a line they would end a paragraph."""
_SUMMARY = re.compile(r"^- \[`macro ([^`]+)`\]\(([^)]+)\)", re.MULTILINE)


def on_config(config: Any) -> Any:
    """List the commands in the navigation as their list of pages does."""
    text = (ROOT / "docs" / "reference" / "commands" / "README.md").read_text(encoding="utf-8")
    pages: dict[str, str] = {}
    for command, page in _SUMMARY.findall(text):
        name = page.removesuffix(".md")
        pages[page] = f"macro {command if name == command.replace(' ', '-') else name}"
    entries = [{"All commands": "reference/commands/README.md"}]
    entries += [{title: f"reference/commands/{page}"} for page, title in pages.items()]
    reference = next(part["Reference"] for part in config.nav if "Reference" in part)
    reference[-1]["Commands"] = entries
    reference[0] = {"Python API": ["reference/python.md", *({name: page} for name, page in _api_pages().items())]}
    return config


def _api_pages() -> dict[str, str]:
    """The page of every public package, by its name."""
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    return {name: f"reference/api/{name.rpartition('.')[2]}.md" for name in _API.findall(text)}


def on_files(files: Any, config: Any) -> Any:
    """Add the notebook as Markdown and pages of the repository's root."""
    notebook = files.get_file_from_path(f"{NOTEBOOK}.ipynb")
    files.remove(notebook)
    files.append(File.generated(config, f"{NOTEBOOK}.md", content=_notebook_as_markdown()))
    for package, page in _api_pages().items():
        files.append(File.generated(config, page, content=_describe_package(package)))
    for source, page in PAGES_FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def _notebook_as_markdown() -> str:
    parts = []
    for cell in json.loads((ROOT / "docs" / f"{NOTEBOOK}.ipynb").read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Expand what plain Markdown cannot say; code stays as it is."""
    source = page.file.src_uri
    folder = dict.fromkeys(PAGES_FROM_ROOT.values(), "").get(source, posixpath.dirname(f"docs/{source}"))
    markdown = _MARKER.sub("", markdown)
    parts = _CODE.split(_LINK.sub(lambda match: _relink(match, folder, source), markdown))
    for index in range(0, len(parts), 2):
        parts[index] = _BLOCK_MATH.sub(lambda match: f"\n\n{convert(match[1], display='block')}\n\n", parts[index])
        parts[index] = _INLINE_MATH.sub(_convert_inline_formula, parts[index])
    pages = _api_pages()
    link = "[All documentation, settings included]({})"
    return _API.sub(lambda match: link.format(posixpath.relpath(pages[match[1]], "reference")), "".join(parts))


def _convert_inline_formula(match: re.Match[str]) -> str:
    """In a span, because Markdown would take a line that begins with a formula for a block of HTML."""
    return f"<span>{convert(match[1].replace(chr(10), ' '))}</span>"


def _relink(match: re.Match[str], folder: str, page: str) -> str:
    """The link as it is on the site; a file that is not part of it is named instead."""
    text, target, anchor = match[1], match[2], match[3] or ""
    if re.match(r"[a-z]+:", target):
        return match[0]
    path = posixpath.normpath(posixpath.join(folder, target))
    if not (ROOT / path).exists():
        raise PluginError(f"{page}: {target} is not there")
    found = PAGES_FROM_ROOT.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else "")
    if not found:
        return f"{text} (`{path}`)" if text != path else f"`{path}`"
    found = found.replace(".ipynb", ".md")
    return f"[{text}]({os.path.relpath(found, posixpath.dirname(page) or '.')}{anchor})"


def _describe_package(package: str) -> str:
    """Every public name of a package; one without documentation is an error."""
    parts = [f"# {package}"]
    module = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        home = getattr(value, "__module__", "")
        if name.startswith("_") or not callable(value) or not home.startswith("macro_routing"):
            continue
        if not value.__doc__:
            raise PluginError(f"{package}.{name} is public and not documented")
        if _is_first_home(package, name):
            parts.append(f"::: {home}.{name}")
        else:
            parts.append(f"## {name}\n\nSee [{home}.{name}][].")
    return "\n\n".join(parts)


def _is_first_home(package: str, name: str) -> bool:
    """Whether a name is described here: of several packages that export it, the last one on the page."""
    exporting = [other for other in _api_pages() if name in import_module(other).__all__]
    return package == exporting[-1]
