"""Options that several commands share: which model, and how it is loaded."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from macro_routing.cli.console import read_text_argument
from macro_routing.errors import ModelError, NotationError
from macro_routing.routes.notation import parse_route
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile, is_route_file, parse_route_file

if TYPE_CHECKING:
    from pathlib import Path

    from macro_routing.models.frozen import FrozenModel
    from macro_routing.models.metadata import ModelMetadata
    from macro_routing.workers.worker_settings import WorkerSettings

DtypeOption = Annotated[
    str,
    typer.Option("--dtype", help="auto, float32, bfloat16 or float16; auto is bfloat16 on CUDA and float32 on CPU."),
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda or cuda:N; auto is CUDA where there is one.")
]
DeviceMapOption = Annotated[
    str | None, typer.Option("--device-map", help="Spread a large model over devices: auto, balanced, sequential.")
]
QuantizationOption = Annotated[
    str | None, typer.Option("--quantization", help="4bit or 8bit, through bitsandbytes (extra [quant]).")
]
AttentionOption = Annotated[str | None, typer.Option("--attention", help="sdpa, eager or flash_attention_2.")]
RevisionOption = Annotated[str | None, typer.Option("--revision", help="Commit, tag or branch of a hub model.")]
TrustOption = Annotated[bool, typer.Option("--trust-remote-code", help="Let code that comes with the model run.")]
UntestedOption = Annotated[
    bool, typer.Option("--allow-untested", help="Try an architecture that the tests do not cover.")
]


class Backend(StrEnum):
    """Where workers run."""

    local = "local"
    ray = "ray"


BackendOption = Annotated[
    Backend, typer.Option("--backend", help="Where workers run: processes here, or a Ray cluster (extra [ray]).")
]
WorkersOption = Annotated[
    int,
    typer.Option(
        "--workers",
        help="Workers, each with the model loaded; 0 works in this process (on Ray: one worker)."
        " Results are the same, rounding aside.",
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray cluster to join: HOST:PORT, ray://HOST:PORT, or auto for the one that runs here.",
        show_default="one is started here",
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option("--gpus-per-worker", help="GPUs, or a share of one, for each worker.", show_default="1, if any"),
]
WorkerTimeoutOption = Annotated[
    float,
    typer.Option(
        "--worker-timeout",
        help="A worker that is silent for longer is replaced; where work units are large or slow it has more.",
    ),
]


QuestionOption = Annotated[
    str | None,
    typer.Option("--question", help="Column of the question, for a file of your own.", show_default="question"),
]
AnswerOption = Annotated[str | None, typer.Option("--answer", help="Column of the answer.", show_default="answer")]
ChoicesOption = Annotated[
    str | None, typer.Option("--choices", help="Column of the choices, or several, with commas.", show_default=False)
]
KindOption = Annotated[str | None, typer.Option("--kind", help="number, choice, math or text.", show_default=False)]


def worker_settings(
    backend: Backend, workers: int, address: str | None, gpus_per_worker: float | None, worker_timeout: float
) -> WorkerSettings:
    """The five flags as settings."""
    from macro_routing.workers.worker_settings import WorkerSettings

    return WorkerSettings(backend.value, workers, address, gpus_per_worker, worker_timeout)


class Racing(StrEnum):
    """Which routes of a round are given up early."""

    exact = "exact"
    statistical = "statistical"
    never = "never"


class Decoder(StrEnum):
    """How texts are written."""

    auto = "auto"
    eager = "eager"
    fused = "fused"


DECODER_HELP = (
    "How text is generated: fused (many routes at once, fused kernels, on a GPU), eager, or auto: fused where possible."
)


def report_progress(message: str) -> None:
    """What takes a while, on standard error."""
    print(f"macro: {message}", file=sys.stderr, flush=True)


def tell_changes(run: Path) -> None:
    """Say which files of a finished run are no longer what the run left."""
    from macro_routing.runs.folder import RunFolder

    for name in RunFolder(run).changed_files():
        report_progress(f"{run / name} was changed after the run had ended: it is not what the run found")


def need_models_extra() -> None:
    """Refuse politely where the libraries for models are not installed."""
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


def model_of_route(argument: str) -> str:
    """The model that a route file names; a route without a file belongs to none."""
    found = route_file(argument)
    if found is None and read_text_argument(argument) != argument:
        raise NotationError(f"{argument} is no route file, or its beginning is missing; name a model with --model")
    if found is None:
        raise NotationError("a route without a route file belongs to no model; name one with --model")
    return found.model


def route_file(argument: str) -> RouteFile | None:
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
    found = route_file(argument)
    if found is None:
        return parse_route(read_text_argument(argument), frozen.layers)
    from macro_routing.models.compatibility import check_route_file, describe_weak_evidence

    route = check_route_file(found, frozen, argument, report=report_progress)
    if reason := describe_weak_evidence(found):
        report_progress(f"note: {reason}")
    return route
