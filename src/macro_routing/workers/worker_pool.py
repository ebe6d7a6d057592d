"""A pool of workers as evaluators see it: started when first needed, ended with the run."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from macro_routing.models.frozen import FrozenModel, load_model, make_remote_model
from macro_routing.models.load_options import LoadOptions
from macro_routing.workers.backend import WorkerBackend
from macro_routing.workers.dispatcher import Dispatcher
from macro_routing.workers.local_backend import LocalWorkerBackend
from macro_routing.workers.worker_messages import WorkerSetup
from macro_routing.workers.worker_settings import RAY, WorkerError, WorkerSettings, check_worker_count

Report = Callable[[str], None]


class WorkerPool(Dispatcher, AbstractContextManager["WorkerPool"]):
    """An executor that runs work items on the workers of a backend, and ends them with its ``with`` block."""

    def __init__(
        self, backend: WorkerBackend, settings: WorkerSettings, report: Report = lambda _message: None
    ) -> None:
        """No worker is started yet."""
        super().__init__(backend, settings, self._report_to_all)
        self._reports = [report]

    def load_driver_model(self, name: str, options: LoadOptions, report: Report) -> FrozenModel:
        """The model for the driver's process; without weights if the workers are on GPUs."""
        facts = None if self._settings.light_driver is False else self.wait_for_model_facts()
        if facts is None or (facts.device == "cpu" and not self._settings.light_driver):
            return load_model(name, options, report)
        return make_remote_model(name, options, facts, report)

    @contextmanager
    def copy_messages_to(self, report: Report) -> Iterator[None]:
        """Also send messages about the workers to ``report``, such as the log of one of several runs."""
        self._reports.append(report)
        try:
            yield
        finally:
            self._reports.remove(report)

    def _report_to_all(self, message: str) -> None:
        for report in self._reports:
            report(message)

    def __exit__(self, *_error: object) -> None:
        """End the workers in any case."""
        self._backend.close()


def create_worker_pool(
    settings: WorkerSettings, setup: WorkerSetup, report: Report = lambda _message: None
) -> WorkerPool:
    """A pool with the backend of ``settings``; workers are started by the first work item."""
    if setup.loading.device.startswith("cuda:"):
        raise WorkerError(
            f"device = {setup.loading.device} is one GPU, but workers have one each; use cuda or auto,"
            " and CUDA_VISIBLE_DEVICES to choose among the GPUs"
        )
    backend: WorkerBackend
    if settings.backend == RAY:
        from macro_routing.workers.ray_backend import RayWorkerBackend

        backend = RayWorkerBackend(setup.to_json(), settings)
    else:
        environments = make_worker_environments(settings, _list_visible_gpus(setup), os.cpu_count() or 1)
        backend = LocalWorkerBackend(setup.to_json(), environments)
    return WorkerPool(backend, settings, report)


def _list_visible_gpus(setup: WorkerSetup) -> list[str]:
    """The GPUs that may be used, by the names that CUDA_VISIBLE_DEVICES takes."""
    if setup.loading.device == "cpu":
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]


def make_worker_environments(settings: WorkerSettings, gpus: Sequence[str], cores: int) -> list[dict[str, str]]:
    """Environment variables of each local worker: its GPUs, or its share of the cores."""
    workers = settings.workers
    if not gpus and settings.gpus_per_worker:
        raise WorkerError(
            f"gpus_per_worker = {settings.gpus_per_worker:g}, but workers would see no GPU here (`macro doctor"
            " --environment` tells which there are, --device cpu hides them); leave it out to work on CPU"
        )
    if not gpus or settings.gpus_per_worker == 0:
        check_worker_count(workers, cores)
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
