"""How the commands print: data to standard output, everything else to standard error, JSON on request."""

import json
import math
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError, NotationError

_RUN_ROUTE = "route.json"
"""Where a run's folder keeps the route it found."""


def escape_control_characters(text: str) -> str:
    """A text without signs that would steer a terminal."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\N{REPLACEMENT CHARACTER}" for sign in text)


def print_error(message: str) -> None:
    """One line on standard error."""
    print(f"macro: error: {escape_control_characters(message)}", file=sys.stderr)


def print_json(value: Any) -> None:
    """A program's view of a result."""
    print(json.dumps(_replace_non_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _replace_non_finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; they become null."""
    if isinstance(value, dict):
        return {key: _replace_non_finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Named values, one per line, aligned."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        print(f"{name:<{width}}  {value}".rstrip())


def read_text_argument(argument: str) -> str:
    """The argument itself, or the contents of the file it names, a run's folder, or standard input for ``-``."""
    if argument == "-":
        return _read_standard_input()
    if not argument.strip():
        raise NotationError("the route is an empty string; the standard pass is 'L0 RJ'")
    try:
        path = Path(argument)
        path = path / _RUN_ROUTE if (path / _RUN_ROUTE).is_file() else path
        is_file = path.is_file()
    except (OSError, ValueError):  # too long or otherwise impossible as a file name
        return argument
    if is_file:
        return _read_route_text(path, argument)
    if reason := _explain_missing_route(path if path.is_dir() else path.parent):
        raise NotationError(f"{argument} cannot be used as a route: {reason}")
    if path.is_dir():
        raise NotationError(f"{argument} is a folder, but no finished run: it holds no {_RUN_ROUTE}")
    if path.suffix in {".json", ".yml", ".yaml", ".txt"}:
        raise NotationError(f"there is no file {argument}")
    if path.exists():
        raise NotationError(f"{argument} is not a regular file; put the route into one")
    return argument


@cache
def _read_standard_input() -> str:
    """What came through the pipe; kept, since a command may look at its route twice."""
    return sys.stdin.read()


def _read_route_text(path: Path, argument: str) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotationError(f"cannot read the route file {argument}: {error}") from None
    if not text.strip():
        raise NotationError(f"{argument} is empty; a finished run's folder holds a route.json")
    return text


def _explain_missing_route(folder: Path) -> str:
    """Why a run has no route though it is finished; empty for anything else."""
    try:
        kind = json.loads((folder / "result.json").read_text(encoding="utf-8")).get("kind")
    except (OSError, ValueError, AttributeError):
        return ""
    return {
        "router": "the run's result is a router, which decides for each prompt; only routes are exported and served",
        "oracle": "the run's result is an oracle, which knows the answers; only routes are exported and served",
    }.get(kind, "")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's contents; a missing or malformed one is an error that says so."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MacroError(f"there is no file {path}") from None
    except (OSError, RecursionError) as error:
        raise MacroError(f"cannot read {path}: {error}") from None
    except ValueError as error:
        raise MacroError(f"cannot read {path}: {error}; it must be a TOML file (lines of key = value)") from None
