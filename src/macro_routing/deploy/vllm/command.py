"""What ``vllm serve`` must be told to serve a route, made without loading weights or importing vLLM."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from macro_routing.deploy.vllm.overrides import route_overrides
from macro_routing.routes.route import Route


def is_installed() -> bool:
    """Whether vLLM is in this environment, found out without importing it."""
    return importlib.util.find_spec("vllm") is not None


def serve_arguments(folder: Path, config: Any, route: Route) -> list[str]:
    """The arguments of ``vllm``: the checkpoint is named as it is, the route stands in the overrides."""
    return ["serve", str(folder), "--hf-overrides", json.dumps(route_overrides(route, config), separators=(",", ":"))]
