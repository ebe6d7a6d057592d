"""The Ray backend: one actor per worker, on whatever machines a cluster has.

Ray places the actors, moves the messages and notices exits. Retries and quarantine are decided by our own dispatcher,
which is the same on every backend; so Ray is told to restart and retry nothing itself.
"""

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from macro_routing.errors import redact_secrets
from macro_routing.workers.backend import Event, MessageFromWorker, WorkerExited
from macro_routing.workers.worker import Worker, start_worker
from macro_routing.workers.worker_settings import WorkerError, WorkerSettings, check_worker_count

_OBJECT_STORE_BYTES = 100_000_000
"""Messages are small; by default Ray reserves a third of the memory for its object store."""
_CONNECT_SECONDS = 20.0


class RayWorker:
    """A Ray actor that does the same as a local worker; its messages are strings."""

    def __init__(self) -> None:
        """The model is loaded when the setup arrives."""
        self._worker: Worker | None = None

    def start_worker(self, setup: str) -> str:
        """Load the model."""
        self._worker, first = start_worker(setup)
        return first

    def handle_item(self, text: str) -> str:
        """Run a work item."""
        assert self._worker is not None
        return self._worker.handle_item(text)


class RayWorkerBackend:
    """Workers that are Ray actors."""

    def __init__(self, setup: str, settings: WorkerSettings, actor: type[Any] = RayWorker) -> None:
        """Join a cluster, or start one on this machine."""
        self._ray = _connect_to_cluster(settings)
        self._setup = setup
        try:
            resources = self._choose_worker_resources(settings)
            self._actor_class = self._ray.remote(actor).options(max_restarts=0, max_task_retries=0, **resources)
        except BaseException:
            self._ray.shutdown()  # nobody gets this backend, so nobody could close it
            raise
        self._actors: dict[int, Any] = {}
        self._pending: dict[Any, int] = {}
        """Slots by their pending calls."""

    def _choose_worker_resources(self, settings: WorkerSettings) -> dict[str, float]:
        """The resources that Ray reserves for each worker; rejected if the cluster has too few for all."""
        available = self._ray.cluster_resources()
        gpus = settings.gpus_per_worker
        if gpus is None:
            gpus = 1 if available.get("GPU") else 0
        # On a GPU the core only launches kernels; a worker without one needs the core to itself.
        resources = {"num_gpus": gpus, "num_cpus": 0 if gpus else 1}
        _check_cluster_resources(available, settings.workers, resources)
        if not gpus and settings.address is None:  # a cluster that is started here claims a core for each
            check_worker_count(settings.workers, os.cpu_count() or 1)
        return resources

    def start_worker(self, slot: int) -> None:
        """Start a new actor; Ray decides on which machine."""
        self.kill_worker(slot)
        self._actors[slot] = self._actor_class.remote()
        self._pending[self._actors[slot].start_worker.remote(self._setup)] = slot

    def send_message(self, slot: int, text: str) -> None:
        """Call the actor with a work item."""
        self._pending[self._actors[slot].handle_item.remote(text)] = slot

    def wait_for_events(self, seconds: float) -> Sequence[Event]:
        """Results that arrived, and actors that exited."""
        if not self._pending:
            return []
        # Results on another machine are finished: fetching them is not the worker's time.
        first, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=seconds, fetch_local=False)
        if not first:
            return []
        ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0, fetch_local=False)
        return [self._read_event(call) for call in ready]

    def _read_event(self, call: Any) -> Event:
        slot = self._pending.pop(call)
        try:
            return MessageFromWorker(slot, self._ray.get(call))
        except self._ray.exceptions.RayError as error:
            self.kill_worker(slot)  # an actor that failed once gets no more work
            return WorkerExited(slot, _describe_exit(error))

    def kill_worker(self, slot: int) -> None:
        """End an actor and drop its pending calls."""
        self._pending = {call: owner for call, owner in self._pending.items() if owner != slot}
        if (actor := self._actors.pop(slot, None)) is not None:
            self._ray.kill(actor)

    def close(self) -> None:
        """End all actors and leave the cluster; a cluster that was started here ends, too."""
        for slot in list(self._actors):
            self.kill_worker(slot)
        self._ray.shutdown()


def _connect_to_cluster(settings: WorkerSettings) -> Any:
    # Set before the import, which reads them: no usage statistics, and Ray must not hide GPUs.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise WorkerError(
            "backend = ray needs Ray: pip install '.[ray]' in the checkout; without it --backend local uses this"
            " machine"
        ) from None
    local: dict[str, Any] = {
        "address": "local",  # otherwise Ray would join a cluster that still runs here
        "num_cpus": max(settings.workers, os.cpu_count() or 1),
        "object_store_memory": _OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    _check_ray_address_reachable(settings.address)
    cluster = local if settings.address is None else {"address": settings.address}
    was_initialized = ray.is_initialized()  # by our caller: init then fails, and it is not ours to end
    try:
        with _keep_sigterm_handler():
            ray.init(**cluster, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # noqa: BLE001 a node that does not start in time is a plain Exception
        if not was_initialized:
            ray.shutdown()
        raise _make_ray_cluster_error(settings.address, error) from None
    return ray


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Keep this process's SIGTERM handler: Ray replaces it by its own ``sys.exit``."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as exit_:
        if exit_.code == signal.SIGTERM and callable(before):  # it arrived while Ray was starting
            before(signal.SIGTERM, None)
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _check_ray_address_reachable(address: str | None) -> None:
    """Check the address first: Ray itself would try for many minutes."""
    if address is None or (parts := re.fullmatch(r"(?:ray://)?(.+):([0-9]+)", address)) is None:
        return
    try:
        socket.create_connection((parts[1], int(parts[2])), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _make_ray_cluster_error(address, error) from None


def _make_ray_cluster_error(address: str | None, error: Exception) -> WorkerError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    if address is None:
        return WorkerError(
            f"the Ray cluster of this machine cannot be used: {reason}; --backend local works without Ray"
        )
    # Text before an @ may be a password, and messages end up in logs.
    shown = re.sub(r"[^/]*@", "[…]@", address)
    return WorkerError(
        f"the Ray cluster {shown} cannot be used: {reason}; start one with `ray start --head` and name its address,"
        " or leave --address out to start one here"
    )


def _check_cluster_resources(available: dict[str, float], workers: int, resources: dict[str, float]) -> None:
    """Reject more workers than the cluster has resources for: they would wait forever."""
    for name, each in (("GPU", resources["num_gpus"]), ("CPU", resources["num_cpus"])):
        if workers * each > available.get(name, 0):
            on_cpu = ", leave gpus_per_worker out to work on CPU" if not available.get("GPU") and name == "GPU" else ""
            raise WorkerError(
                f"{workers} workers with {each:g} {name} each need {workers * each:g}, but the Ray cluster has"
                f" {available.get(name, 0):g}; use fewer workers{on_cpu or ', other gpus_per_worker'}, or add machines"
                " to the cluster"
            )


def _describe_exit(error: Exception) -> str:
    """Why an actor exited, in one line: the last line of the worker's own error."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    deaths = [line for line in lines if line.startswith("The actor died")]
    return redact_secrets(deaths[0] if deaths else lines[-1] if lines else type(error).__name__)[:300]
