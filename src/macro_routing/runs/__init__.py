"""One search from start to end, on disk: configuration, folder, loop, result."""

from macro_routing.runs.config import RunConfig
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.progress import Listener
from macro_routing.runs.result import RunResult
from macro_routing.runs.run import resume, search

__all__ = ["Listener", "RunConfig", "RunFolder", "RunResult", "resume", "search"]
