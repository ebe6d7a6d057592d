"""``macro models``: what is built in, and which architectures can be routed."""

import dataclasses
from typing import Annotated

import typer

from macro_routing.cli.console import check_and_quiet_model_libraries, print_json, print_progress_message
from macro_routing.errors import ModelError, suggest_name
from macro_routing.models.built_in import BUILT_IN_MODELS
from macro_routing.models.catalog import fetch_model_folder, get_cache_folder_of_converted_gguf
from macro_routing.models.support import SUPPORTED_ARCHITECTURES


def models(
    fetch: Annotated[
        str | None, typer.Option(help="Fetch and convert a built-in model now.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the built-in models and the supported architectures.

    Example: `macro models --fetch smollm2-135m`
    """
    if fetch is not None:
        if fetch not in BUILT_IN_MODELS:
            raise ModelError(
                f"{fetch!r} is not built in; built in are {', '.join(BUILT_IN_MODELS)}"
                f"{suggest_name(fetch, BUILT_IN_MODELS)}"
            )
        check_and_quiet_model_libraries()
        print(fetch_model_folder(fetch, report=print_progress_message))
        return
    if as_json:
        built_in = {
            name: {**dataclasses.asdict(model), "cached": _is_model_converted(name)}
            for name, model in BUILT_IN_MODELS.items()
        }
        print_json({"built_in": built_in, "architectures": SUPPORTED_ARCHITECTURES})
        return
    print("Built in (fetched by pip on first use):")
    for name, model in BUILT_IN_MODELS.items():
        cached = "cached" if _is_model_converted(name) else "not fetched"
        print(f"  {name:<20} {model.layers} layers, {model.size:>6}, {model.licence:<12} {cached:<12} {model.note}")
    print("\nArchitectures (a folder, a .gguf file or a hub id of any of these):")
    for name, known_as in SUPPORTED_ARCHITECTURES.items():
        print(f"  {name:<20} {known_as}")


def _is_model_converted(name: str) -> bool:
    return get_cache_folder_of_converted_gguf(BUILT_IN_MODELS[name].digest).is_dir()
