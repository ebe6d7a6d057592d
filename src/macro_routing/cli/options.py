"""What several commands do: check what is installed, report progress, read a route."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from macro_routing.cli.console import read_text_argument
from macro_routing.errors import ModelError, NotationError
from macro_routing.routes.notation import parse_route
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile, is_route_file, parse_route_file

if TYPE_CHECKING:
    from pathlib import Path

    from macro_routing.models.frozen import FrozenModel
    from macro_routing.models.metadata import ModelMetadata


def report_progress(message: str) -> None:
    """What takes a while, on standard error."""
    print(f"macro: {message}", file=sys.stderr, flush=True)


def report_changed_files(run: Path) -> None:
    """Say which files of a finished run are no longer what the run left."""
    from macro_routing.runs.folder import RunFolder

    for name in RunFolder(run).changed_files():
        report_progress(f"{run / name} was changed after the run had ended: it is not what the run found")


def require_models_extra() -> None:
    """Reject politely where the libraries for models are not installed."""
    import importlib.util

    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise ModelError(f"{name} is not installed; models need it: pip install 'macro-routing[models]'")


def quiet_libraries() -> None:
    """Keep progress bars and advice of the libraries below out of a command's output.

    Message in the environment, which they read when they are imported: a mistake in the flags is told before that.
    """
    import logging
    import os
    import warnings

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if advice := sys.modules.get("transformers.utils.logging"):  # they are, where a program calls a command
        advice.set_verbosity_error()
        advice.disable_progress_bar()
    # transformers has two kinds of progress bar; this one is for converting GGUF files.
    os.environ.setdefault("TQDM_DISABLE", "1")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"(transformers|bitsandbytes|accelerate|torch)\b")


def find_model_of_route(argument: str) -> str:
    """The model that a route file names; a route without a file belongs to none."""
    found = read_route_file(argument)
    if found is None and read_text_argument(argument) != argument:
        raise NotationError(f"{argument} is not a route file, or its beginning is missing; name a model with --model")
    if found is None:
        raise NotationError("a route without a route file belongs to no model; name one with --model")
    return found.model


def read_route_file(argument: str) -> RouteFile | None:
    """The route file that an argument names or holds; None for a route in another notation."""
    text = read_text_argument(argument)
    if not is_route_file(text):
        return None
    try:
        return parse_route_file(text)
    except NotationError as error:
        raise NotationError(f"{argument[:200]}: {error}; a finished run's folder holds a sound one") from None


def read_route(argument: str, frozen: FrozenModel | ModelMetadata) -> Route:
    """A route in any notation or from a file; a route file of another model is refused."""
    found = read_route_file(argument)
    if found is None:
        return parse_route(read_text_argument(argument), frozen.layers)
    from macro_routing.models.compatibility import check_route_file, describe_weak_evidence

    route = check_route_file(found, frozen, argument, report=report_progress)
    if reason := describe_weak_evidence(found):
        report_progress(f"note: {reason}")
    return route
