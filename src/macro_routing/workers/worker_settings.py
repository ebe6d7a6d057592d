"""Worker settings: how many, where they run, and their timeouts."""

import re
from dataclasses import dataclass
from typing import Annotated

from macro_routing.errors import MacroError, SettingsError, shorten_value
from macro_routing.settings import AllowedRange, CheckedSettings, check_choice, check_number, option

LOCAL, RAY = "local", "ray"
BACKENDS = (LOCAL, RAY)
_PANEL = "Execution"
_MAX_PER_CORE = 8
"""More workers than this for each core of one machine are a typing error."""
_ADDRESS = re.compile(r"auto|(ray://)?[^\s/]+:[0-9]{1,5}")


class WorkerError(MacroError):
    """Workers cannot be started or crash; names the reason and how to continue."""


@dataclass(frozen=True)
class WorkerSettings(CheckedSettings):
    """Where evaluations run. Nothing here changes a result, so it is not part of a run's configuration."""

    backend: str = option(
        LOCAL, "Where workers run: processes here, or a Ray cluster (extra [ray]).", _PANEL, choices=BACKENDS
    )
    workers: Annotated[int, AllowedRange(0, 10_000)] = option(
        0,
        "Workers, each with the model loaded; 0 evaluates in this process (on Ray: one worker)."
        " Results are the same, rounding aside.",
        _PANEL,
    )
    address: str | None = option(
        None,
        "The Ray cluster to join: HOST:PORT, ray://HOST:PORT, or auto for the one that runs here.",
        _PANEL,
        shown_default="one is started here",
    )
    gpus_per_worker: float | None = option(
        None, "GPUs, or a share of one, for each worker.", _PANEL, shown_default="1, if any"
    )
    worker_timeout: Annotated[float, AllowedRange(0, exclusive=True)] = option(
        30.0,
        "Minutes after which a worker without an answer is replaced; large work items have longer.",
        _PANEL,
        metavar="MINUTES",
    )
    """For large work items see ``adaptive_timeout``."""
    start_timeout: Annotated[float, AllowedRange(0, exclusive=True)] = 30.0
    """Minutes that a worker may take to load the model."""
    attempts: Annotated[int, AllowedRange(1)] = 3
    """How often a route may crash its worker before it is given up."""
    light_driver: bool | None = None
    """Whether the search's own process loads no weights; None: if the workers are on GPUs."""

    def __post_init__(self) -> None:
        """Reject impossible settings by name."""
        check_choice("backend", self.backend, BACKENDS)
        self._reject_address_without_ray()
        self._check_gpus_per_worker()
        super().__post_init__()
        if self.backend == RAY and self.workers == 0:
            object.__setattr__(self, "workers", 1)

    def _reject_address_without_ray(self) -> None:
        if self.address is None:
            return
        if self.backend != RAY:
            raise SettingsError(
                "address is for backend = ray only, local workers are on this machine;"
                " add --backend ray or leave --address out"
            )
        if not isinstance(self.address, str) or not _ADDRESS.fullmatch(self.address):
            raise SettingsError(
                f"address = {shorten_value(self.address)} is not allowed: it must be HOST:PORT, as `ray start --head`"
                " prints it, ray://HOST:PORT, or auto for the cluster that runs on this machine"
            )

    def _check_gpus_per_worker(self) -> None:
        each = self.gpus_per_worker
        if each is None:
            return
        check_number("gpus_per_worker", each, minimum=0)
        if each > 1 and each != int(each):
            raise SettingsError(f"gpus_per_worker = {each:g} is not allowed: it must be an integer, or a share below 1")
        if self.workers == 0 and self.backend == LOCAL:
            raise SettingsError("gpus_per_worker needs workers; add --workers N or leave it out")

    @property
    def description(self) -> str:
        """A short description for messages."""
        where = "processes of this machine" if self.backend == LOCAL else "actors on Ray"
        return f"{self.workers} worker{'' if self.workers == 1 else 's'}, {where}"

    @property
    def runs_in_process(self) -> bool:
        """Whether the search runs the model in its own process."""
        return self.workers == 0


def check_worker_count(workers: int, cores: int) -> None:
    """Reject more workers than a machine has cores for: each would hold the model in memory."""
    if workers > _MAX_PER_CORE * cores:
        raise WorkerError(
            f"{workers} workers on {cores} cores would wait for each other, each with the model in memory;"
            f" use about {cores}, or --backend ray --address with more machines"
        )
