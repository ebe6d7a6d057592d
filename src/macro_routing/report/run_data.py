"""What a run's folder holds, read once, as far as the run came."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.runs import folder as files
from macro_routing.runs.folder import RunFolder
from macro_routing.runs.progress import RoundReport
from macro_routing.runs.result import RunResult


@dataclass(frozen=True)
class RunData:
    """A run as it lies on disk; what it has not come to yet is None."""

    path: Path
    header: dict[str, Any]
    rounds: tuple[RoundReport, ...]
    ended: dict[str, Any] | None
    choice: dict[str, Any] | None
    """Final candidates and which one was chosen."""
    result: RunResult | None
    answers: dict[str, Any] | None
    is_finished: bool

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return int(self.header["model"]["layers"])

    @property
    def given(self) -> dict[str, Any]:
        """The configuration as given."""
        return dict(self.header["config"]["given"])

    @property
    def resolved(self) -> dict[str, Any]:
        """The configuration as resolved for this model."""
        return dict(self.header["config"]["resolved"])

    @property
    def settings(self) -> dict[str, Any]:
        """The search's settings."""
        return dict(self.resolved["searcher"]["settings"])

    @property
    def mode(self) -> str:
        """How answers were obtained."""
        return str(self.resolved["decoding"]["mode"])


def read_run(place: RunFolder) -> RunData:
    """Everything a report needs."""

    def read_if_there(name: str) -> Any:
        return place.read(name) if place.has(name) else None

    result = read_if_there(files.RESULT)
    return RunData(
        place.path,
        place.read(files.RUN),
        tuple(RoundReport(**one) for one in place.rounds()),
        read_if_there(files.ENDED),
        read_if_there(files.CANDIDATES),
        None if result is None else RunResult.from_json(result),
        read_if_there(files.ANSWERS),
        place.is_finished,
    )
