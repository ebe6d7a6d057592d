"""One search from start to end, on disk: configuration, folder, loop, result.

The names below are loaded when they are asked for: reading a finished run needs no deep-learning library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.runs.config import RunConfig, make_run_config
    from macro_routing.runs.folder import RunFolder
    from macro_routing.runs.prepare import resume_run, run_search, search_routes
    from macro_routing.runs.progress import Listener
    from macro_routing.runs.result import RunResult

__all__ = [
    "Listener",
    "RunConfig",
    "RunFolder",
    "RunResult",
    "make_run_config",
    "resume_run",
    "run_search",
    "search_routes",
]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "Listener": "progress",
        "RunConfig": "config",
        "RunFolder": "folder",
        "RunResult": "result",
        "make_run_config": "config",
        "resume_run": "prepare",
        "run_search": "prepare",
        "search_routes": "prepare",
    },
)
