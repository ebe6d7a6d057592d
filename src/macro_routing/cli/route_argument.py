"""Routes given as arguments: in any notation, as a file, as a run's folder, or through standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from macro_routing.cli.console import print_progress_message
from macro_routing.errors import NotationError
from macro_routing.models.route_file_compatibility import check_route_file_fits_model, describe_weak_evidence
from macro_routing.routes import Route
from macro_routing.routes.mixture import RouteOrMixture, require_single_route
from macro_routing.routes.notation import looks_like_route, parse_route_or_mixture
from macro_routing.routes.route_file import (
    RouteFile,
    check_unchanged_since_run,
    is_route_file_text,
    parse_route_file,
)
from macro_routing.runs.folder import RESULT, ROUTE

if TYPE_CHECKING:
    from macro_routing.models.frozen import FrozenModel, ModelMetadata


def read_route_text(argument: str) -> str:
    """The argument itself, or the contents of the file it names, a run's folder, or standard input for ``-``."""
    if argument == "-":
        return _read_standard_input()
    if not argument.strip():
        raise NotationError("the route is an empty string; the standard pass is 'L0 RJ'")
    try:
        path = Path(argument)
        path = path / ROUTE if (path / ROUTE).is_file() else path
        is_file = path.is_file()
    except (OSError, ValueError):  # too long or otherwise impossible as a file name
        return argument
    if is_file:
        check_unchanged_since_run(path)
        return _read_nonempty_file(path, argument)
    if reason := _explain_missing_route(path if path.is_dir() else path.parent):
        raise NotationError(f"{argument} cannot be used as a route: {reason}")
    if path.is_dir():
        raise NotationError(f"{argument} is a folder, but no finished run: it holds no {ROUTE}")
    if path.suffix in {".json", ".yml", ".yaml", ".txt"}:
        raise NotationError(f"there is no file {argument}")
    if path.exists():
        raise NotationError(f"{argument} is not a regular file; put the route into one")
    if not looks_like_route(argument):
        raise NotationError(
            f"there is no run's folder and no file {argument}, and a route is written like 'L0-L7 L3-L9 RJ'"
        )
    return argument


@cache
def _read_standard_input() -> str:
    """What came through the pipe; kept, since a command may look at its route twice."""
    return sys.stdin.read()


def _read_nonempty_file(path: Path, argument: str) -> str:
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
        kind = json.loads((folder / RESULT).read_text(encoding="utf-8")).get("kind")
    except (OSError, ValueError, AttributeError):
        return ""
    return {
        "router": "the run's result is a router, which decides for each prompt; only routes are exported and served",
        "oracle": "the run's result is an oracle, which knows the answers; only routes are exported and served",
        "two models": "the run's result adds two models' predictions; only routes are exported and served",
    }.get(kind, "")


def read_route_file(argument: str) -> RouteFile | None:
    """The route file that an argument names or holds; None for a route in another notation."""
    text = read_route_text(argument)
    if not is_route_file_text(text):
        return None
    try:
        return parse_route_file(text)
    except NotationError as error:
        raise NotationError(f"{argument[:200]}: {error}; a finished run's folder holds a sound one") from None


def find_model_of_route(argument: str) -> str:
    """The model that a route file names; a route without a file belongs to none."""
    if file := read_route_file(argument):
        return file.model
    if read_route_text(argument) != argument:
        raise NotationError(f"{argument} is not a route file, or its beginning is missing; name a model with --model")
    raise NotationError("a route without a route file belongs to no model; name one with --model")


def check_route_without_model(
    argument: str, model: str, check: Callable[[RouteOrMixture], object] = lambda _route: None
) -> None:
    """Reject what no route can be read from, and a route beyond the model's layers where their number is known.

    So is what ``check`` rejects.
    """
    from macro_routing.models.catalog import find_layer_count

    file, layers = read_route_file(argument), find_layer_count(model)
    if file is not None:
        check(file.route)
    elif layers is not None:
        check(parse_route_or_mixture(read_route_text(argument), layers))


def read_route(argument: str, frozen: FrozenModel | ModelMetadata, use: str = "this command") -> Route:
    """A single route, as ``read_route_or_mixture``; a mixture is rejected."""
    return require_single_route(read_route_or_mixture(argument, frozen), use)


def read_route_or_mixture(argument: str, frozen: FrozenModel | ModelMetadata) -> RouteOrMixture:
    """A route in any notation, a mixture, or what a file holds; a route file of another model is rejected."""
    file = read_route_file(argument)
    if file is None:
        return parse_route_or_mixture(read_route_text(argument), frozen.layers)
    route = check_route_file_fits_model(file, frozen, argument, report=print_progress_message)
    if reason := describe_weak_evidence(file):
        print_progress_message(f"note: {reason}")
    return route
