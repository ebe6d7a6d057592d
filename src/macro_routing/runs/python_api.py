"""``search_routes``: one search from Python, in one call."""

import tempfile
from pathlib import Path
from typing import Any

from macro_routing.models.frozen import FrozenModel
from macro_routing.runs.config import make_config
from macro_routing.runs.prepare import run_search
from macro_routing.runs.result import RunResult
from macro_routing.tasks.task import Task


def search_routes(
    model: FrozenModel | str, task: Task | str, folder: str | Path | None = None, **settings: Any
) -> RunResult:
    """Search a route for ``model`` on ``task``, select it on validation examples and test it once.

    ``settings`` are those of a configuration file: ``preset``, ``method``, ``seed``, ``budget`` and the tables
    ``search``, ``data``, ``decoding`` and others. The run is written to ``folder``, which must be new, or a temporary
    folder. The result names it and holds the route (``best_route``) with its evidence (``comparison``,
    ``verdict``).

    Example::

        result = search_routes("smollm2-135m", "category", preset="quick", seed=1)
        print(result.best_route, result.verdict, result.folder)
    """
    task_name = task.name if isinstance(task, Task) else task
    model_name = model.name if isinstance(model, FrozenModel) else model
    return run_search(
        make_config(task_name, model_name, **settings),
        Path(tempfile.mkdtemp(prefix="macro-")) / "run" if folder is None else folder,
        frozen=model if isinstance(model, FrozenModel) else None,
        task=task if isinstance(task, Task) else None,
    )
