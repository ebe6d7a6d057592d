"""How the commands print: data to standard output, everything else to standard error, JSON on request.

What the libraries below would print is kept out.
"""

import importlib.util
import json
import logging
import os
import sys
import textwrap
import tomllib
import warnings
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError, ModelError
from macro_routing.files import replace_non_finite

_MAX_WIDTH = 10_000
"""Maximum characters of a table's line."""
_MAX_ERROR_PART = 1000
"""Characters of a long error message that are shown from its beginning, and from its end."""


def escape_control_characters(text: str) -> str:
    """Replace characters that would control a terminal."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in text)


def print_error(message: str) -> None:
    """One line on standard error; of a message with a long quotation the beginning and the end, where the remedy is."""
    if len(message) > 2 * _MAX_ERROR_PART:
        message = f"{message[:_MAX_ERROR_PART]} […] {message[-_MAX_ERROR_PART:]}"
    print(f"macro: error: {escape_control_characters(message)}", file=sys.stderr)


def print_progress_message(message: str) -> None:
    """What takes a while, on standard error."""
    print(f"macro: {message}", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """A program's view of a result."""
    print(json.dumps(replace_non_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Named values, one per line, aligned."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        print(f"{name:<{width}}  {value}".rstrip())


def format_multiline_field(name: str, lines: Iterable[str]) -> list[tuple[str, str]]:
    """Several lines of one named value, as ``print_fields`` takes them."""
    return [("" if number else name, line) for number, line in enumerate(lines)]


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[str] = ("",),
    wrapped: Collection[str] = (),
    **style: Any,
) -> None:
    """A table; ``left`` columns are aligned to the left, ``wrapped`` ones are folded to the terminal's width.

    Without one that is folded, a table that is wider than the terminal is printed row by row, a value per line.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.measure import Measurement
    from rich.table import Column, Table

    columns = [
        Column(
            escape(heading),
            justify="left" if heading in left else "right",
            no_wrap=heading not in wrapped,
            overflow="fold",
        )
        for heading in headings
    ]
    table = Table(*columns, **style)
    cells = [[escape_control_characters(cell) for cell in row] for row in rows]
    for row in cells:
        table.add_row(*map(escape, row))
    wide = Console(width=_MAX_WIDTH)
    needed = 0 if wrapped else Measurement.get(wide, wide.options, table).maximum
    console = Console()
    if console.is_terminal and needed > console.width:
        for row in cells:
            print()
            _print_row_as_fields(headings, row, console.width)
    else:  # a pipe takes lines of any length
        Console(width=max(console.width, needed)).print(table)


def _print_row_as_fields(headings: Sequence[str], row: Sequence[str], width: int) -> None:
    """A row of a table, its first column as the heading; empty values are left out."""
    if row[0]:
        print_paragraph(f"{headings[0]} {row[0]}".strip())
    names = max(len(heading) for heading in headings[1:])
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        if cell:
            begin = f"  {heading:<{names}}  "
            # A name so long that little is left for values is better above them.
            first, rest = (begin, " " * len(begin)) if len(begin) < width // 2 else (f"  {heading}: ", "    ")
            print(textwrap.fill(cell, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False))


def print_paragraph(text: str) -> None:
    """A sentence or more, broken between words at the terminal's width; on one line in a pipe."""
    from rich.console import Console

    console = Console()
    is_terminal = console.is_terminal
    print(textwrap.fill(text, console.width, break_long_words=False, break_on_hyphens=False) if is_terminal else text)


def read_toml(path: Path | None) -> dict[str, Any]:
    """A TOML file's contents, empty without one; a missing or malformed file is an error that says so."""
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MacroError(f"there is no file {path}") from None
    except (OSError, RecursionError) as error:
        raise MacroError(f"cannot read {path}: {error}") from None
    except ValueError as error:
        raise MacroError(f"cannot read {path}: {error}; it must be a TOML file (lines of key = value)") from None


def check_and_quiet_model_libraries() -> None:
    """Check that the libraries for models are installed, and keep their progress bars and advice out of the output.

    Importing them takes seconds, so it is said. They read the environment when they are imported: an error in the flags
    is reported before that.
    """
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise ModelError(f"{name} is not installed; models need it: pip install '.[models]' in the checkout")
    if "torch" not in sys.modules:
        print_progress_message("loading torch and transformers")
    # transformers has two kinds of progress bar; TQDM_DISABLE is for the one of converting GGUF files.
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    os.environ.update({name: value for name, value in quiet.items() if name not in os.environ})
    if loaded := sys.modules.get("transformers.utils.logging"):  # it is, where a program calls a command
        loaded.set_verbosity_error()
        loaded.disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(transformers|bitsandbytes|accelerate|torch)\b")
