"""One search from start to end, on disk: configuration, folder, loop, result.

The names below are loaded when they are asked for: reading a finished run needs no deep-learning library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macro_routing.runs.config import RunConfig
    from macro_routing.runs.folder import RunFolder
    from macro_routing.runs.prepare import resume_run, run_search
    from macro_routing.runs.progress import Listener
    from macro_routing.runs.result import RunResult

__all__ = ["Listener", "RunConfig", "RunFolder", "RunResult", "resume_run", "run_search"]
_MODULES = {
    "Listener": "progress",
    "RunConfig": "config",
    "RunFolder": "folder",
    "RunResult": "result",
    "resume_run": "prepare",
    "run_search": "prepare",
}


def __getattr__(name: str) -> Any:
    """Load the module of a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
