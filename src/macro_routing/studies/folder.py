"""A study on disk: what it is, its parts, each kept whole, and what was made of them.

study.json               which study with which settings; other settings are rejected once something was measured
measurements/NAME.json   one part's values, with the fingerprint of the model and the data they belong to
runs/…                   searches, each an ordinary run folder
data.json, table.*, figure.*   the result; written again whenever the study ends
"""

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from macro_routing.errors import RunError
from macro_routing.files import UNFINISHED, acquire_lock
from macro_routing.report.rendering import write_output_file
from macro_routing.runs import folder as run_files

FORMAT = "macro-study/2"
_MAX_NAME = 150
"""Characters of the name of a part's file or folder."""
STUDY, MEASUREMENTS, RUNS, LOCK = "study.json", "measurements", "runs", "lock"
_UNFINISHED = f"{STUDY}{UNFINISHED}"
"""Left by a process that ended while writing."""


class OtherSettingsError(RunError):
    """A folder holds the same study of something else."""


@dataclass(frozen=True)
class StudyFolder:
    """One study's folder; nothing is read or written before ``open``."""

    path: Path

    @classmethod
    def open(cls, path: Path, study: str, settings: Mapping[str, Any]) -> "StudyFolder":
        """The folder of this study, begun now or earlier with the same settings."""
        wanted = {"format": FORMAT, "study": study, "settings": json.loads(json.dumps(settings))}
        folder = cls(path)
        with _explain_folder_errors(path):
            if (path / STUDY).is_file():
                folder._check_same_study(wanted)
            else:
                folder._create_folder(wanted)
        return folder

    @classmethod
    def open_free_or_matching(cls, path: Path, study: str, settings: Mapping[str, Any]) -> "StudyFolder":
        """The first of ``path``, ``path.2``, … that is free or was begun with these settings."""
        for number in itertools.count(1):
            candidate = path if number == 1 else path.with_name(f"{path.name}.{number}")
            with contextlib.suppress(OtherSettingsError):
                return cls.open(candidate, study, settings)
        raise AssertionError  # itertools.count is endless

    def _create_folder(self, wanted: Mapping[str, Any]) -> None:
        if (self.path / run_files.RUN).is_file():
            raise RunError(f"{self.path} is a run's own folder; name another one for the study with --out")
        is_free = not (self.path / STUDY).exists() and self.path.is_dir() and self._is_study_folder_unmeasured()
        if self.path.exists() and not is_free:
            raise RunError(f"{self.path} is not an empty folder and holds no study; name another one with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        # First: a process stopped after it leaves a study and not a foreign folder.
        _write_json(self.path / STUDY, wanted)
        (self.path / MEASUREMENTS).mkdir(exist_ok=True)

    def _check_same_study(self, wanted: Mapping[str, Any]) -> None:
        remedy = "so the study cannot be identified; put it back, or name another folder with --out"
        before = _read_json_object(self.path / STUDY, remedy)
        if before.get("format") != FORMAT:
            raise RunError(
                f"{self.path} was written by a version with the format {before.get('format')!r}; this version reads"
                f" {FORMAT}: continue it with the version that wrote it, or name another folder with --out"
            )
        if before.get("study") != wanted["study"]:
            raise RunError(f"{self.path} holds the study {before.get('study')}; name another folder with --out")
        settings = _get_json_object(before, "settings", self.path / STUDY, remedy)
        changed = sorted(_find_differing_settings(settings, wanted["settings"]))
        if changed and self._is_study_folder_unmeasured():
            with self.lock():  # another process may hold it while it loads a model
                _write_json(self.path / STUDY, wanted)
        elif changed:
            raise OtherSettingsError(
                f"{self.path} was begun with other settings ({', '.join(changed)});"
                " name another folder with --out, or give the settings it was begun with"
            )
        (self.path / MEASUREMENTS).mkdir(exist_ok=True)

    def _is_study_folder_unmeasured(self) -> bool:
        """Whether nothing was measured yet; mistaken settings can be replaced then."""
        parts = [path for name in (MEASUREMENTS, RUNS) for path in (self.path / name).glob("*")]
        return not parts and {path.name for path in self.path.iterdir()} <= {
            STUDY,
            _UNFINISHED,
            MEASUREMENTS,
            RUNS,
            LOCK,
        }

    def run_folder(self, name: str) -> Path:
        """Where a search of this study is."""
        return self.path / RUNS / make_file_name(name)

    def load_or_measure(self, name: str, fingerprint: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part's values from its file, or measured now; ``fingerprint`` names the model and the data."""
        path = self._measurement_path(name)
        if path.is_file():
            remedy = "remove it and the same command measures it again"
            kept = _read_json_object(path, remedy)
            if kept.get("fingerprint") != fingerprint:
                raise RunError(
                    f"{path} was measured on another model, other data or other prompts; name another folder with --out"
                )
            return _get_json_object(kept, "values", path, remedy)
        values: dict[str, Any] = json.loads(json.dumps(measure()))  # as it will be read the next time
        (self.path / MEASUREMENTS).mkdir(exist_ok=True)
        _write_json(path, {"fingerprint": fingerprint, "values": values})
        return values

    def has_measurement(self, name: str) -> bool:
        """Whether a part was measured already."""
        return self._measurement_path(name).is_file()

    def _measurement_path(self, name: str) -> Path:
        return self.path / MEASUREMENTS / f"{make_file_name(name)}.json"

    def lock(self) -> TextIO:
        """Keep other processes out; the lock ends with the process."""
        with _explain_folder_errors(self.path):
            return acquire_lock(self.path / LOCK)


def make_file_name(name: str) -> str:
    """A part's name as the name of a file or folder."""
    plain = re.sub(r"[^\w.+-]+", "_", name)
    if len(plain) <= _MAX_NAME:
        return plain
    # Two long names may begin alike: a digest keeps them apart.
    return f"{plain[: _MAX_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _find_differing_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in {*before, *now}:
        first, second = before.get(name), now.get(name)
        if isinstance(first, dict) and isinstance(second, dict):
            yield from (f"{name}.{inner}" for inner in _find_differing_settings(first, second))
        elif first != second:
            yield name


def _read_json_object(path: Path, remedy: str) -> dict[str, Any]:
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _make_damage_error(path, error, remedy) from None
    if not isinstance(contents, dict):
        raise _make_damage_error(path, "it is not an object", remedy)
    return contents


def _get_json_object(file: Mapping[str, Any], name: str, path: Path, remedy: str) -> dict[str, Any]:
    """An object within a file."""
    contents = file.get(name)
    if not isinstance(contents, dict):
        raise _make_damage_error(path, f'"{name}" is not an object', remedy)
    return contents


def _make_damage_error(path: Path, why: object, remedy: str) -> RunError:
    return RunError(f"{path} is damaged ({why}); {remedy}")


@contextmanager
def _explain_folder_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{str(path)[:200]} cannot be used: {error.strerror}; name another folder with --out"
        raise RunError(message) from None


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_output_file(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
