"""The Ray backend: one actor per worker, on whatever machines a cluster has.

Ray places the actors, moves the messages and notices what dies; who is asked again, and when a route is given up, is
decided by our own driver, which is the same on every backend. So Ray is told to restart and retry nothing itself.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from macro_routing.errors import without_secrets
from macro_routing.workers.backend import Event, Exited, Message
from macro_routing.workers.settings import WorkerError, WorkerSettings, check_cores
from macro_routing.workers.worker import Worker, begin

_STORE_BYTES = 100_000_000
"""Messages are small; Ray would set aside a third of the memory for its object store."""
_REACH_SECONDS = 20.0


class RayWorker:
    """What an actor does: the same as a local worker, on texts."""

    def __init__(self) -> None:
        """Nothing is loaded before the setup comes."""
        self._worker: Worker | None = None

    def begin(self, setup: str) -> str:
        """Load the model."""
        self._worker, first = begin(setup)
        return first

    def answer(self, text: str) -> str:
        """Answer an ask."""
        assert self._worker is not None
        return self._worker.answer(text)


class RayBackend:
    """Workers that are actors."""

    def __init__(self, setup: str, settings: WorkerSettings, actor: type[Any] = RayWorker) -> None:
        """Join a cluster, or start one on this machine."""
        self._ray = _joined(settings)
        self._setup = setup
        try:
            self._kind = self._ray.remote(actor).options(max_restarts=0, max_task_retries=0, **self._needs(settings))
        except BaseException:
            self._ray.shutdown()  # nobody gets this crew, so nobody could close it
            raise
        self._actors: dict[int, Any] = {}
        self._answers: dict[Any, int] = {}
        """Slots by the answers that are awaited of them."""

    def _needs(self, settings: WorkerSettings) -> dict[str, float]:
        """What Ray sets aside for each worker; refused where there is not enough for all."""
        has = self._ray.cluster_resources()
        gpus = settings.gpus_per_worker
        if gpus is None:
            gpus = 1 if has.get("GPU") else 0
        # On a GPU the core is busy launching; a worker without one needs the core to itself.
        needs = {"num_gpus": gpus, "num_cpus": 0 if gpus else 1}
        _check_room(has, settings.workers, needs)
        if not gpus and settings.address is None:  # one that is started here says to have a core for each
            check_cores(settings.workers, os.cpu_count() or 1)
        return needs

    def start(self, slot: int) -> None:
        """A new actor; Ray decides on which machine."""
        self.kill(slot)
        self._actors[slot] = self._kind.remote()
        self._answers[self._actors[slot].begin.remote(self._setup)] = slot

    def give(self, slot: int, text: str) -> None:
        """A call of the actor."""
        self._answers[self._actors[slot].answer.remote(text)] = slot

    def wait(self, seconds: float) -> Sequence[Event]:
        """Results that have come, and actors that are gone."""
        if not self._answers:
            return []
        # An answer that lies on another machine has been given: fetching it is not the worker's time.
        first, _ = self._ray.wait(list(self._answers), num_returns=1, timeout=seconds, fetch_local=False)
        if not first:
            return []
        ready, _ = self._ray.wait(list(self._answers), num_returns=len(self._answers), timeout=0, fetch_local=False)
        return [self._heard(answer) for answer in ready]

    def _heard(self, answer: Any) -> Event:
        slot = self._answers.pop(answer)
        try:
            return Message(slot, self._ray.get(answer))
        except self._ray.exceptions.RayError as error:
            self.kill(slot)  # what broke once is not asked again
            return Exited(slot, _reason(error))

    def kill(self, slot: int) -> None:
        """End an actor, and forget what it was asked."""
        self._answers = {answer: of for answer, of in self._answers.items() if of != slot}
        if (actor := self._actors.pop(slot, None)) is not None:
            self._ray.kill(actor)

    def close(self) -> None:
        """End all actors, and leave the cluster; one that was started here ends with it."""
        for slot in list(self._actors):
            self.kill(slot)
        self._ray.shutdown()


def _joined(settings: WorkerSettings) -> Any:
    # Before the import, which reads them: nothing is reported to anyone, and a GPU is hidden by nobody but us.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise WorkerError(
            "backend = ray needs Ray: pip install 'macro-routing[ray]'; without it --backend local uses this machine"
        ) from None
    here: dict[str, Any] = {
        "address": "local",  # or a cluster that somebody left running would be joined
        "num_cpus": max(settings.workers, os.cpu_count() or 1),
        "object_store_memory": _STORE_BYTES,
        "include_dashboard": False,
    }
    _check_reachable(settings.address)
    there = None if settings.address is None else {"address": settings.address}
    is_theirs = ray.is_initialized()  # by whoever calls us: it is refused, and not ours to end
    try:
        with _own_end():
            ray.init(**(there or here), log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if not is_theirs:
            ray.shutdown()
        raise _unusable(settings.address, error) from None
    return ray


@contextmanager
def _own_end() -> Iterator[None]:
    """Keep what this process does when it is asked to end: Ray would put its own ``sys.exit`` in the place."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as ended:
        if ended.code == signal.SIGTERM and callable(before):  # asked while Ray was starting
            before(signal.SIGTERM, None)
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _check_reachable(address: str | None) -> None:
    """Ray itself would try for many minutes."""
    if address is None or (place := re.fullmatch(r"(?:ray://)?(.+):([0-9]+)", address)) is None:
        return
    try:
        socket.create_connection((place[1], int(place[2])), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unusable(address, error) from None


def _unusable(address: str | None, error: Exception) -> WorkerError:
    if address is None:
        remedy = "--backend local does without Ray"
    else:
        remedy = "start one with `ray start --head` and name its address, or leave --address out to have one here"
    # Whatever stands before an @ may be a password, and messages end in logs.
    named = "of this machine" if address is None else re.sub(r"[^/]*@", "[…]@", address)
    return WorkerError(f"the Ray cluster {named} cannot be used: {_first_line(error)}; {remedy}")


def _check_room(has: dict[str, float], workers: int, needs: dict[str, float]) -> None:
    """Refuse more workers than the cluster has room for: they would wait for ever."""
    for name, each in (("GPU", needs["num_gpus"]), ("CPU", needs["num_cpus"])):
        if workers * each > has.get(name, 0):
            on_cpu = ", leave gpus_per_worker out to work on CPU" if not has.get("GPU") and name == "GPU" else ""
            raise WorkerError(
                f"{workers} workers with {each:g} {name} each need {workers * each:g}, but the Ray cluster has"
                f" {has.get(name, 0):g}; use fewer workers{on_cpu or ', other gpus_per_worker'}, or add machines to the"
                " cluster"
            )


def _reason(error: Exception) -> str:
    """Why an actor is gone, in a line: of an error in the worker that error's own last line."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("The actor died")]
    return without_secrets(told[0] if told else lines[-1] if lines else type(error).__name__)[:300]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
