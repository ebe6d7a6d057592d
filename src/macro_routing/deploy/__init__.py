"""Use a route outside of this project: route files, checkpoints, GGUF, mergekit, servers, evaluation harness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.deploy.route_loading import load_route, read_route_file
    from macro_routing.deploy.route_switching import RoutedModel
    from macro_routing.deploy.routed_checkpoint import register
    from macro_routing.deploy.vllm.hf_overrides import make_route_overrides

__all__ = ["RoutedModel", "load_route", "make_route_overrides", "read_route_file", "register"]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "RoutedModel": "route_switching",
        "load_route": "route_loading",
        "make_route_overrides": "vllm.hf_overrides",
        "read_route_file": "route_loading",
        "register": "routed_checkpoint",
    },
)
