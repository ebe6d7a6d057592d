"""A study on disk: what it is, its parts, each kept whole, and what was made of them.

study.json        which study with which settings; another one is refused once something was measured
cells/NAME.json   one part's measurement, with the mark of the model and the data it belongs to
runs/…            searches, each an ordinary run's folder
data.json, table.*, figure.*   what the study came to; made again whenever it ends
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from macro_routing.errors import RunError
from macro_routing.files import UNFINISHED, acquire_lock
from macro_routing.report.rendering import write_output
from macro_routing.runs import folder as run_files

FORMAT = "macro-study/1"
_LONGEST = 150
"""Signs of a part's file or folder name."""
STUDY, CELLS, RUNS, LOCK = "study.json", "cells", "runs", "lock"
_UNFINISHED = f"{STUDY}{UNFINISHED}"
"""What is left where a process ended while it wrote."""


class OtherSettingsError(RunError):
    """A folder holds the same study of something else."""


class StudyFolder:
    """One study's folder."""

    def __init__(self, path: Path) -> None:
        """Nothing is read or written yet."""
        self.path = path

    @classmethod
    def opened(cls, path: Path, study: str, settings: Mapping[str, Any]) -> StudyFolder:
        """The folder of this study, begun now or earlier with the same settings."""
        wanted = {"format": FORMAT, "study": study, "settings": json.loads(json.dumps(settings))}
        folder = cls(path)
        try:
            if (path / STUDY).is_file():
                folder._check(wanted)
            else:
                folder._begin(wanted)
        except OSError as error:
            raise _unusable(path, error) from None
        return folder

    @classmethod
    def among(cls, path: Path, study: str, settings: Mapping[str, Any]) -> StudyFolder:
        """The first of ``path``, ``path.2``, … that is free or was begun with these settings."""
        for number in itertools.count(1):
            place = path if number == 1 else path.with_name(f"{path.name}.{number}")
            with contextlib.suppress(OtherSettingsError):
                return cls.opened(place, study, settings)
        raise AssertionError  # numbers do not end

    def _begin(self, wanted: Mapping[str, Any]) -> None:
        if (self.path / run_files.RUN).is_file():
            raise RunError(f"{self.path} is a run's own folder; name another one for the study with --out")
        is_free = not (self.path / STUDY).exists() and self.path.is_dir() and self._is_untouched()
        if self.path.exists() and not is_free:
            raise RunError(f"{self.path} is not an empty folder and holds no study; name another one with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.path / STUDY, wanted)  # first: whoever is stopped after it finds a study and no foreign folder
        (self.path / CELLS).mkdir(exist_ok=True)

    def _check(self, wanted: Mapping[str, Any]) -> None:
        remedy = "so this study can no longer be told from another; put it back, or name another folder with --out"
        before = _read(self.path / STUDY, remedy)
        if before.get("format") != FORMAT:
            raise RunError(f"{self.path} has the format {before.get('format')!r}; this version reads {FORMAT}")
        if before.get("study") != wanted["study"]:
            raise RunError(f"{self.path} holds the study {before.get('study')}; name another folder with --out")
        settings = _object_in(before, "settings", self.path / STUDY, remedy)
        changed = sorted(_differing(settings, wanted["settings"]))
        if changed and self._is_untouched():
            with self.held():  # who waits for a model to load holds it, and nobody else may say what it is for
                _write(self.path / STUDY, wanted)
        elif changed:
            raise OtherSettingsError(
                f"{self.path} was begun with other settings ({', '.join(changed)});"
                " name another folder with --out, or give the settings it was begun with"
            )
        (self.path / CELLS).mkdir(exist_ok=True)

    def _is_untouched(self) -> bool:
        """Whether nothing was measured yet: settings that were a mistake are in nobody's way then."""
        parts = [path for name in (CELLS, RUNS) for path in (self.path / name).glob("*")]
        return not parts and {path.name for path in self.path.iterdir()} <= {STUDY, _UNFINISHED, CELLS, RUNS, LOCK}

    def run_place(self, name: str) -> Path:
        """Where a search of this study is."""
        return self.path / RUNS / file_name(name)

    def cell(self, name: str, mark: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A part as it was measured, or measured now; ``mark`` names the model and the data it belongs to."""
        path = self._cell_path(name)
        if path.is_file():
            remedy = "remove it and the same command makes it again"
            kept = _read(path, remedy)
            if kept.get("mark") != mark:
                raise RunError(
                    f"{path} was measured on another model, other data or other prompts; name another folder with --out"
                )
            return _object_in(kept, "found", path, remedy)
        found: dict[str, Any] = json.loads(json.dumps(make()))  # as it will be read the next time
        (self.path / CELLS).mkdir(exist_ok=True)
        _write(path, {"mark": mark, "found": found})
        return found

    def has_cell(self, name: str) -> bool:
        """Whether a part was measured already."""
        return self._cell_path(name).is_file()

    def _cell_path(self, name: str) -> Path:
        return self.path / CELLS / f"{file_name(name)}.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out; the lock goes with the process, however it ends."""
        try:
            lock = acquire_lock(self.path / LOCK)
        except OSError as error:
            raise _unusable(self.path, error) from None
        with lock:
            yield


def file_name(name: str) -> str:
    """A part's name as one folder or file can be called."""
    plain = re.sub(r"[^\w.+-]+", "_", name)
    if len(plain) <= _LONGEST:
        return plain
    # Two long names may begin alike: their ends must not be lost without a trace.
    return f"{plain[: _LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in {*before, *now}:
        first, second = before.get(name), now.get(name)
        if isinstance(first, dict) and isinstance(second, dict):
            yield from (f"{name}.{inner}" for inner in _differing(first, second))
        elif first != second:
            yield name


def _read(path: Path, remedy: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error, remedy) from None
    if not isinstance(found, dict):
        raise _damaged(path, "it is no object", remedy)
    return found


def _object_in(file: Mapping[str, Any], name: str, path: Path, remedy: str) -> dict[str, Any]:
    """One of a file's own objects."""
    found = file.get(name)
    if not isinstance(found, dict):
        raise _damaged(path, f'"{name}" is no object', remedy)
    return found


def _damaged(path: Path, why: object, remedy: str) -> RunError:
    return RunError(f"{path} is damaged ({why}); {remedy}")


def _unusable(path: Path, error: OSError) -> RunError:
    return RunError(f"{str(path)[:200]} cannot be used: {error.strerror}; name another folder with --out")


def _write(path: Path, value: Mapping[str, Any]) -> None:
    write_output(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
