"""How many workers there are, where they run, and how patient their driver is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from macro_routing.errors import MacroError, SettingsError, shorten
from macro_routing.settings import check_choice, check_integer, check_number

LOCAL, RAY = "local", "ray"
BACKENDS = (LOCAL, RAY)
_MOST_PER_CORE = 8
"""More workers than this for each core of one machine are a slip of the finger."""
_ADDRESS = re.compile(r"auto|(ray://)?[^\s/]+:[0-9]{1,5}")


class WorkerError(MacroError):
    """Workers cannot be started or do not survive; names the reason and how to go on."""


@dataclass(frozen=True)
class WorkerSettings:
    """Who works outcomes out. Nothing here changes what is asked and decided, so it is no part of a configuration."""

    backend: str = LOCAL
    """``local``: processes on this machine; ``ray``: actors of a Ray cluster."""
    workers: int = 0
    """0 works in the process of the search itself, as long as the backend is local."""
    address: str | None = None
    """Where the Ray cluster is; None starts one on this machine, ``auto`` takes the one that runs here."""
    gpus_per_worker: float | None = None
    """Whole GPUs for a model that is larger than one, or a share of one; None: one each where there are GPUs."""
    worker_timeout: float = 30.0
    """A worker that has not answered an ask of usual size after these is taken to hang and replaced.

    Larger asks have longer, see ``patience``.
    """
    start_timeout: float = 30.0
    """The same for loading the model."""
    attempts: int = 3
    """How often a route may take its worker down before it is given up."""

    light_driver: bool | None = None
    """Whether the search's own process does without the weights; None: where the workers are on GPUs."""

    def __post_init__(self) -> None:
        """Refuse what cannot be had."""
        check_choice("backend", self.backend, BACKENDS)
        check_integer("workers", self.workers, minimum=0, maximum=10_000)
        self._check_address()
        self._check_gpus()
        check_number("worker_timeout", self.worker_timeout, minimum=0, exclusive=True)
        check_number("start_timeout", self.start_timeout, minimum=0, exclusive=True)
        check_integer("attempts", self.attempts, minimum=1)
        if self.backend == RAY and self.workers == 0:
            object.__setattr__(self, "workers", 1)

    def _check_address(self) -> None:
        if self.address is None:
            return
        if self.backend != RAY:
            raise SettingsError(
                "address is for backend = ray alone, local workers are on this machine;"
                " add --backend ray or leave --address out"
            )
        if not isinstance(self.address, str) or not _ADDRESS.fullmatch(self.address):
            raise SettingsError(
                f"address = {shorten(self.address)} is not allowed: it must be HOST:PORT, as `ray start --head` prints"
                " it, ray://HOST:PORT, or auto for the cluster that runs on this machine"
            )

    def _check_gpus(self) -> None:
        each = self.gpus_per_worker
        if each is None:
            return
        check_number("gpus_per_worker", each, minimum=0)
        if each > 1 and each != int(each):
            raise SettingsError(f"gpus_per_worker = {each:g} is not allowed: it must be whole, or a share below 1")
        if self.workers == 0 and self.backend == LOCAL:
            raise SettingsError("gpus_per_worker is for workers, and there are none; add --workers N or leave it out")

    @property
    def described(self) -> str:
        """For people."""
        where = "processes of this machine" if self.backend == LOCAL else "actors on Ray"
        return f"{self.workers} worker{'' if self.workers == 1 else 's'}, {where}"

    @property
    def in_process(self) -> bool:
        """Whether the search does the work itself."""
        return self.workers == 0


def check_cores(workers: int, cores: int) -> None:
    """Refuse to fill one machine's memory with workers that it has no cores for."""
    if workers > _MOST_PER_CORE * cores:
        raise WorkerError(
            f"{workers} workers on {cores} cores would only wait for each other, each with the model in memory;"
            f" use about {cores}, or --backend ray --address with more machines"
        )
