"""What fault scenarios stand on: a small search that is known to its last digit, and how two of its ends compare."""

import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.evaluation.work_items import EvaluatorSpec, Results, WorkItem
from macro_routing.routes import Route
from macro_routing.runs import RunConfig, RunFolder, run_search
from macro_routing.runs import folder as files
from macro_routing.search import ScoringFailure
from macro_routing.tasks.task import Example, fingerprint_examples
from macro_routing.workers.backend import WorkerBackend
from macro_routing.workers.local_backend import COMMAND, LocalWorkerBackend
from macro_routing.workers.ray_backend import RayWorkerBackend
from macro_routing.workers.worker_messages import WorkerSetup, WorkerTaskSource
from macro_routing.workers.worker_pool import WorkerPool
from macro_routing.workers.worker_settings import RAY, WorkerSettings

Rows = dict[tuple[Any, ...], tuple[Any, ...]]
TABLES: dict[str, dict[str, Any]] = {
    "": {"preset": "quick", "method": "macro", "seed": 3},
    "search": {"iterations": 3, "draws": 14, "elite": 2, "k": 3, "epsilon_local": 0.4, "alpha": 0.05},
    "data": {"training": 90, "validation": 20, "test": 40, "question": "q", "answer": "a", "choices": "c"},
    "space": {"max_length": 10},
    "units": {"race": 4, "full": 16},
}
WORKERS = 2


class AuditedPool(WorkerPool):
    """Workers whose answers are looked over: none may be given twice, or be of what was stored before."""

    def __init__(
        self, backend: WorkerBackend, settings: WorkerSettings, report: Callable[[str], None], before: Rows
    ) -> None:
        """``before`` is what the store holds when the run begins."""
        super().__init__(backend, settings, report)
        self.twice = 0
        self._before = {key[2:] for key in before}
        self._seen: set[tuple[Any, ...]] = set()

    def run_work_items(
        self, spec: EvaluatorSpec, items: Sequence[WorkItem]
    ) -> Iterator[tuple[WorkItem, Results | ScoringFailure]]:
        """Results as they come."""
        for ask, answers in super().run_work_items(spec, items):
            if not isinstance(answers, ScoringFailure):
                self.twice += sum(self._is_known(spec.task, route, ask) for route in ask.routes)
            yield ask, answers

    def _is_known(self, task: str, route: Route, ask: WorkItem) -> bool:
        given = (task, route, ask.unit)
        stored = all((str(route), _example_digest(one)) in self._before for one in ask.unit)
        known = stored or given in self._seen
        self._seen.add(given)
        return known


def _example_digest(example: Example) -> bytes:
    """An example as the store names it."""
    return hashlib.sha256(f"{example.id}/{fingerprint_examples([example])}".encode()).digest()[:16]


@dataclass(frozen=True)
class ReferenceSearch:
    """A search, and how it ends when nothing happens to it."""

    folder: Path
    config: RunConfig
    undisturbed: Path
    """The folder of the run that nothing happened to; its store lies beside it."""

    @classmethod
    def make(cls, folder: Path) -> "ReferenceSearch":
        """A tiny model and task on disk, and the undisturbed run, in one process."""
        from tests.runs.small import small_folder, write_task_file

        folder.mkdir(parents=True, exist_ok=True)
        model, task = small_folder(folder / "model"), write_task_file(folder / "task.jsonl", 240)
        tables = {**TABLES, "": {**TABLES[""], "model": str(model), "task": str(task)}}
        (folder / "search.toml").write_text(_to_toml(tables), encoding="utf-8")
        config = RunConfig.from_toml_tables({**tables[""], **{k: v for k, v in tables.items() if k}}, "the reference")
        run_search(config, folder / "undisturbed", store=store_path(folder / "undisturbed"))
        return cls(folder, config, folder / "undisturbed")

    @property
    def setup(self) -> WorkerSetup:
        """What workers load."""
        columns = {name: TABLES["data"][name] for name in ("question", "answer", "choices")}
        return WorkerSetup(self.config.model, self.config.loading, (WorkerTaskSource(self.config.task, **columns),))

    def pool(self, settings: WorkerSettings, run_folder: Path, module: str = "") -> AuditedPool:
        """Workers for a run in ``run_folder``; ``module`` names another program for them."""
        backend: WorkerBackend
        if settings.backend == RAY:
            backend = RayWorkerBackend(self.setup.to_json(), settings)
        else:
            command = (*COMMAND[:-1], module) if module else COMMAND
            backend = LocalWorkerBackend(self.setup.to_json(), [{"OMP_NUM_THREADS": "1"}] * settings.workers, command)
        return AuditedPool(backend, settings, lambda _message: None, read_outcomes(store_path(run_folder)))

    def command(self, run_folder: Path, workers: int = WORKERS) -> list[str]:
        """The search as a command, or its continuation where it has begun."""
        begun = (run_folder / files.RUN).is_file()
        what = ["resume", str(run_folder)] if begun else ["search", "--config", str(self.folder / "search.toml")]
        where = [*([] if begun else ["--out", str(run_folder)]), "--store", str(store_path(run_folder))]
        return [sys.executable, "-m", "macro_routing.cli.main", *what, *where, "--workers", str(workers)]


def command_environment(**changes: str) -> dict[str, str]:
    """For commands: one thread each, and this checkout's code."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


def _to_toml(tables: dict[str, dict[str, Any]]) -> str:
    """Texts and numbers are written in TOML as in JSON."""
    parts = []
    for name, table in tables.items():
        parts += [f"[{name}]"] if name else []
        parts += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(parts) + "\n"


def store_path(run: Path) -> Path:
    """Where a scenario's run keeps its scores."""
    return run.with_suffix(".sqlite")


def read_decisions(run: Path) -> list[Any]:
    """Everything a run decided: result, choice, answers, draws, policy; without times and places."""
    state = RunFolder.open(run).load_last_state()
    assert state is not None
    texts = [(run / name).read_text(encoding="utf-8") for name in (files.RESULT, files.CANDIDATES, files.ANSWERS)]
    draws = [(str(draw.proposal.route), draw.outcome) for draw in state.draws]
    return [*(text.replace(str(run), "") for text in texts), draws, state.policy_table.tobytes()]


def read_outcomes(store: Path) -> Rows:
    """All outcomes of a store by scope, route and example."""
    query = (
        "SELECT scopes.description, routes.layers, routes.text, outcomes.example, outcomes.* FROM outcomes"
        " JOIN scopes ON scopes.id = outcomes.scope JOIN routes ON routes.id = outcomes.route"
    )
    if not store.is_file():
        return {}
    with closing(sqlite3.connect(store, timeout=60)) as connection:
        connection.text_factory = lambda text: text.decode(errors="replace")  # a damaged store has other texts
        # The first three columns of an outcome are numbers and digests that other stores give otherwise.
        return {tuple(row[:4]): tuple(row[7:]) for row in connection.execute(query)}


def count_lost_outcomes(reference: ReferenceSearch, store: Path) -> int:
    """Outcomes of the undisturbed run that a store lacks or has otherwise."""
    found = read_outcomes(store)
    return sum(found.get(key) != value for key, value in read_outcomes(store_path(reference.undisturbed)).items())
