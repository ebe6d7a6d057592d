"""Puts recorded figures into the pages: no number in README or docs is typed in; writes the commands' pages.

    python tools/render_docs.py            rewrite the pages from docs/data and from the commands' code
    python tools/render_docs.py --check    fail when a page differs from either

A page shows a record's table between two comments, and one value inside a sentence likewise:

    <!-- table core_speed.json --> … <!-- end -->
    <!-- value core_speed.json results.0.median_ms --> … <!-- end -->

Of a long table a page shows the rows with one value of a column, or none, and folds the whole table below:

    <!-- table paper_stream.json models=all --> … <!-- end -->        <!-- table replay.json folded --> … <!-- end -->

What is made of the code (``code_tables``) or of several records (``result_tables``, ``result_numbers``) likewise:

    <!-- code presets --> … <!-- end -->
    <!-- results headline --> … <!-- end -->        <!-- number gain-direct --> … <!-- end -->

A study has its result in a sentence, its picture and its table, and says so where it was not run yet:

    <!-- study study_transfer.json --> … <!-- end -->
"""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from code_tables import TABLES as CODE_TABLES
from command_pages import command_pages, stale_pages, write_pages
from pictures import stale_pictures, write_pictures
from result_numbers import NUMBERS as RESULT_NUMBERS
from result_tables import TABLES as RESULT_TABLES
from result_tables import TITLES, add_test_sizes, get_study_headline
from wording import reword

from macro_routing.cli.main import make_cli_app

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data"
NEEDED = ("command", "config", "commit", "hardware", "seed", "n", "columns", "results")
COMPUTED: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "code": CODE_TABLES,
    "results": RESULT_TABLES,
    "number": RESULT_NUMBERS,
}
FOLDED = "folded"
"""In place of a column and its value: no row is shown outside of the folded table."""
_COMPARISONS = ("peers", "search_quality", "search_cost")
"""Records whose methods have names of their own."""
_BLOCK = re.compile(r"<!-- (table|value|study|code|results|number) (\S+?)((?: \S+)?) -->.*?<!-- end -->", re.DOTALL)


def pages() -> list[Path]:
    """The pages that may show figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def record(name: str) -> Mapping[str, Any]:
    """A recorded measurement; one that could not be repeated is refused."""
    path = DATA / name
    if not path.is_file():
        sys.exit(f"no record {path.relative_to(ROOT)}")
    content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if missing := [key for key in NEEDED if key not in content]:
        sys.exit(f"{path.relative_to(ROOT)} lacks {', '.join(missing)}")
    return content


def show(value: Any) -> str:
    """A value as a reader wants it: three significant digits, nothing for nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return reword(str(value).replace("|", "\\|"))


def table(name: str, shown: str = "") -> str:
    """A record's results as a Markdown table, with what it takes to repeat them below; ``shown`` folds a long one."""
    content = add_test_sizes(name, record(name))
    rows = content["results"]
    if not shown:
        parts = [_table_of_rows(name, content, rows)]
    else:
        column, _, value = shown.partition("=")
        if column not in content["columns"] and shown != FOLDED:
            sys.exit(f"{name} has no column {column}")
        chosen = [row for row in rows if shown != FOLDED and str(row[column]) == value]
        summary = f'<details markdown="1"><summary>{"All" if chosen else "The table,"} {len(rows)} rows</summary>'
        first = [_table_of_rows(name, content, chosen)] if chosen else []
        parts = [*first, "", summary, "", _table_of_rows(name, content, rows), "", "</details>"]
    return "\n".join(["", *parts, "", _origin(content), ""])


def _table_of_rows(name: str, content: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    columns = {key: title for key, title in content["columns"].items() if not _is_goal(key, content["results"])}
    titles = TITLES if name.startswith(_COMPARISONS) else {}
    heads = [show(titles.get(title, title)) for title in columns.values()]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(columns)]
    for row in rows:
        cells = [
            show(row.get(key)) + (" (missed)" if _is_target(key) and row.get("met") is False else "") for key in columns
        ]
        lines.append("| " + " | ".join(titles.get(cell, cell) for cell in cells) + " |")
    return "\n".join(lines)


def _is_target(key: str) -> bool:
    return key.startswith("target")


def _is_goal(key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column holds the goals that were set for a figure; a page shows them where one is missed."""
    is_goal = _is_target(key) and not any(isinstance(row.get(key), str) for row in rows)
    return is_goal and not any(row.get("met") is False for row in rows)


def _origin(content: Mapping[str, Any]) -> str:
    """How to repeat a measurement; a script that was removed is named with the last commit that has it."""
    origin = f"`{content['command']}`, seed {content['seed']}, commit {content['commit']}; {content['hardware']}."
    if last := content.get("script_in_commit"):
        return f"Made by a script that is no longer in the repository (commit {last} has it): {origin}"
    return origin


def study(name: str, page: Path) -> str:
    """A study's headline, picture, table and notes; or that there are none yet."""
    if not (DATA / name).is_file():
        return "\n*Not run yet.*\n"
    config = record(name)["config"]
    picture = ROOT / "docs" / "pictures" / f"{Path(name).stem}.svg"
    headline = get_study_headline(name, config["headline"])
    shown = [f"![{config['title']}]({os.path.relpath(picture, page.parent)})"] if picture.is_file() else []
    parts = [f"Model: {show(config['model'])}. {headline}" if config["model"] else headline, *shown]
    return "\n" + "\n\n".join([*parts, table(name).strip(), *map(reword, config["notes"])]) + "\n"


def value(name: str, path: str) -> str:
    """One value of a record."""
    found: Any = record(name)
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return show(found)


def render(text: str, page: Path) -> str:
    """The page with every block filled from its record."""

    def fill(match: re.Match[str]) -> str:
        kind, name, path = match[1], match[2], match[3].strip()
        if kind in COMPUTED:
            filled = COMPUTED[kind][name]()
        elif kind == "study":
            filled = study(name, page)
        else:
            filled = table(name, path) if kind == "table" else value(name, path)
        return f"<!-- {kind} {name}{match[3]} -->{filled}<!-- end -->"

    return _BLOCK.sub(fill, text)


def main() -> None:
    """Render or check all pages."""
    check = "--check" in sys.argv[1:]
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (rendered := render(text, page)) != text:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(rendered, encoding="utf-8")
    commands, folder = command_pages(make_cli_app()), ROOT / "docs" / "reference" / "commands"
    pictures = ROOT / "docs" / "pictures"
    stale += [str(page.relative_to(ROOT)) for page in (*stale_pages(commands, folder), *stale_pictures(pictures))]
    if not check:
        write_pages(commands, folder)
        pictures.mkdir(parents=True, exist_ok=True)
        write_pictures(pictures)
    if stale:
        print(("differ from docs/data or the code, run make docs: " if check else "rendered: ") + ", ".join(stale))
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
