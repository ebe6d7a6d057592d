"""MACRO: Markov chain routing of transformer layers. Runs the layers of a frozen language model in a better order."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macro_routing.deploy.routed_checkpoint import register

try:
    __version__ = version("macro-routing")
except PackageNotFoundError:  # a source tree on PYTHONPATH, as on machines where nothing can be installed
    __version__ = "0+source"

__all__ = ["__version__", "register"]
_PLACES = {"register": "deploy.checkpoint"}
"""Where public names live; loaded when they are asked for, so that importing the package stays light."""


def __getattr__(name: str) -> Any:
    """Load the module of a public name."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
