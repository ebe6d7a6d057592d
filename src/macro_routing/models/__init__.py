"""Frozen models: find, load and check them, and apply routes to them.

Names are imported when they are used, since torch takes seconds to load and ``macro --help`` should not.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macro_routing.models.frozen import FrozenModel, LoadOptions, freeze_model, load_model
    from macro_routing.models.lens import apply_lm_head, collect_hidden_states
    from macro_routing.models.routing import apply_route

__all__ = [
    "FrozenModel",
    "LoadOptions",
    "apply_lm_head",
    "apply_route",
    "collect_hidden_states",
    "freeze_model",
    "load_model",
]

_HOMES = {
    "FrozenModel": "frozen",
    "LoadOptions": "frozen",
    "freeze_model": "frozen",
    "load_model": "frozen",
    "collect_hidden_states": "lens",
    "apply_lm_head": "lens",
    "apply_route": "routing",
}


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
