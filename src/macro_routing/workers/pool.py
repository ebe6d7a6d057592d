"""Workers as evaluators see them: started when first needed, ended with the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.executor import Results, WorkItem
from macro_routing.models.frozen import FrozenModel, LoadOptions, load_model
from macro_routing.models.remote import make_remote_model
from macro_routing.search.searcher import Failure
from macro_routing.workers.backend import WorkerBackend
from macro_routing.workers.dispatch_state import DispatchCounts, DispatchLimits
from macro_routing.workers.dispatcher import Dispatcher
from macro_routing.workers.local_backend import LocalBackend
from macro_routing.workers.messages import Assignment, WorkerSetup
from macro_routing.workers.settings import RAY, WorkerError, WorkerSettings, check_cores

if TYPE_CHECKING:
    from types import TracebackType

Report = Callable[[str], None]


class WorkerPool:
    """An executor whose workers are those of a crew."""

    def __init__(self, crew: WorkerBackend, settings: WorkerSettings, report: Report = lambda _message: None) -> None:
        """Nothing is started yet."""
        self._crew = crew
        self._is_light = settings.light_driver
        self.workers = settings.workers
        limits = DispatchLimits(60 * settings.worker_timeout, 60 * settings.start_timeout, settings.attempts)
        self._reports = [report]
        self._dispatcher = Dispatcher(crew, settings.workers, limits, self._tell)

    @property
    def counts(self) -> DispatchCounts:
        """What happened to the workers so far."""
        return self._dispatcher.counts

    @property
    def processes(self) -> list[int]:
        """Process numbers of the workers that are ready, each on its machine."""
        return self._dispatcher.processes

    def wait_for_all(self) -> None:
        """Start the workers and wait until each has loaded its model; a search need not, a measurement must."""
        self._dispatcher.wait_for_all()

    def model(self, name: str, options: LoadOptions, report: Report) -> FrozenModel:
        """The model as the process that drives the workers needs it; on GPUs that is without its weights."""
        if self._is_light is False:
            return load_model(name, options, report)
        facts = self._dispatcher.facts()
        if self._is_light or facts.device != "cpu":
            return make_remote_model(name, options, facts, report)
        return load_model(name, options, report)

    def run(self, evaluator: Evaluator, asks: Sequence[WorkItem]) -> Iterator[tuple[WorkItem, Results | Failure]]:
        """Results as they come."""
        if asks:
            yield from self._dispatcher.run(Assignment.of(evaluator), asks)

    @contextmanager
    def telling(self, report: Report) -> Iterator[None]:
        """For a while somebody else, too, hears what happens to the workers: the log of a run that a pool outlasts."""
        self._reports.append(report)
        try:
            yield
        finally:
            self._reports.remove(report)

    def _tell(self, message: str) -> None:
        for report in self._reports:
            report(message)

    def close(self) -> None:
        """End the workers."""
        self._crew.close()

    def __enter__(self) -> Self:
        """Nothing is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers, whatever happened."""
        self.close()


def create_worker_pool(
    settings: WorkerSettings, setup: WorkerSetup, report: Report = lambda _message: None
) -> WorkerPool:
    """The pool that settings ask for; workers are started at the first ask."""
    if setup.loading.device.startswith("cuda:"):
        raise WorkerError(
            f"device = {setup.loading.device} is one GPU, but workers have one each; use cuda or auto,"
            " and CUDA_VISIBLE_DEVICES to choose among the GPUs"
        )
    crew: WorkerBackend
    if settings.backend == RAY:
        from macro_routing.workers.ray_backend import RayBackend

        crew = RayBackend(setup.to_text(), settings)
    else:
        crew = LocalBackend(setup.to_text(), worker_environments(settings, _visible_gpus(setup), os.cpu_count() or 1))
    return WorkerPool(crew, settings, report)


def _visible_gpus(setup: WorkerSetup) -> list[str]:
    """The GPUs that may be used, by the names that CUDA_VISIBLE_DEVICES takes."""
    if setup.loading.device == "cpu":
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def worker_environments(settings: WorkerSettings, gpus: Sequence[str], cores: int) -> list[dict[str, str]]:
    """What differs for each local worker: its GPUs, or its share of the cores."""
    workers = settings.workers
    if not gpus and settings.gpus_per_worker:
        raise WorkerError(
            f"gpus_per_worker = {settings.gpus_per_worker:g}, but workers would see no GPU here (`macro doctor"
            " --environment` tells which there are, --device cpu hides them); leave it out to work on CPU"
        )
    if not gpus or settings.gpus_per_worker == 0:
        check_cores(workers, cores)
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // workers))
        return [{"OMP_NUM_THREADS": threads} for _ in range(workers)]
    each = settings.gpus_per_worker or 1
    if workers * each > len(gpus):
        raise WorkerError(
            f"{workers} workers with {each:g} GPUs each need {workers * each:g}, but {len(gpus)} are visible;"
            " use fewer workers, or a share of a GPU with gpus_per_worker = 0.5"
        )
    if each < 1:
        return [{"CUDA_VISIBLE_DEVICES": gpus[int(number * each)]} for number in range(workers)]
    size = int(each)
    return [{"CUDA_VISIBLE_DEVICES": ",".join(gpus[size * n : size * (n + 1)])} for n in range(workers)]
