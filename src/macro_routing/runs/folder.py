"""A run on disk: every file written whole or not at all, one process at a time, the manifest last.

run.json          format, configuration as given and as resolved, model, splits, versions and hardware
run.toml          the configuration as given, for `macro search --config`
states/NNN.npz    the search after NNN rounds: every draw with its scores, the policy
rounds/NNN.json   what round NNN showed and cost
ended.json        why the search ended before its last round, where it did
interrupted.json  seconds of a round that was interrupted; removed when the round is complete
candidates.json   final candidates with validation scores, and which one was chosen
answers.json      test answers of the variants, example by example
result.json       the verdict and the table of variants
route.json        the chosen route with its evidence
cost.json         what that route costs compared with the standard pass: layers, time, memory
report.html       the report
manifest.json     digests of all of these; written last, so a run that has one is complete
log.txt           what happened, with the time of each line
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macro_routing.errors import MacroError, NotationError, RouteError, RunError, redact_secrets
from macro_routing.files import acquire_lock, describe_os_error, digest_file, open_regular_file, write_atomically

if TYPE_CHECKING:  # searches need numpy; a look into a folder does not
    from macro_routing.search import SearchState

FORMAT = "macro-run/2"
RUN, ENDED, CANDIDATES, ANSWERS, RESULT, ROUTE, COST, REPORT, MANIFEST = (
    *("run.json", "ended.json", "candidates.json", "answers.json"),
    *("result.json", "route.json", "cost.json", "report.html", "manifest.json"),
)


_WRONG_SHAPE = (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, OSError)
"""What reading contents of another shape raises."""
LOG = "log.txt"
INTERRUPTED = "interrupted.json"
"""The seconds of an unfinished round; no finished run has it."""
ORACLE_COUNTS, ROUTERS = "oracle.json", "routers"
"""What an oracle found, in counts; the folder of trained routers. Runs whose result is a route have neither."""


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        """Nothing is read or written yet."""
        self.path = path

    @staticmethod
    def check_folder_free_for_run(path: Path) -> None:
        """Reject a folder that no run may begin in; nothing is written."""
        with RunFolder(path).explain_write_errors(begun=False):
            has_run, is_taken = (path / RUN).exists(), path.exists() and not path.is_dir()
            is_taken = is_taken or (path.is_dir() and any(map(_entry_marks_folder_occupied, path.iterdir())))
        if has_run:
            raise RunError(f"{path} holds a run already; go on with it (`macro resume {path}`) or name another folder")
        if is_taken:
            raise RunError(f"{path} is not an empty folder; name a new one with --out")
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            reason = "cannot be written" if parent.is_dir() else "is not a folder"
            raise RunError(f"{str(path)[:200]} cannot be made, {parent} {reason}; name another with --out")

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """A folder that held nothing and is ready for a run."""
        RunFolder.check_folder_free_for_run(path)
        folder = cls(path)
        with folder.explain_write_errors(begun=False):
            folder._make_folders()
        return folder

    def _make_folders(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        for part in (self.path / "states", self.path / "rounds"):
            part.mkdir(exist_ok=True)
        for part in (*self.path.glob("states"), *self.path.glob("rounds"), *self.path.glob(ROUTERS)):
            if part.is_symlink():
                raise RunError(f"{part} is a symbolic link, which is never written through; replace it by a folder")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of a run, of this version."""
        try:
            has_run = (path / RUN).is_file()
        except OSError as error:
            raise RunError(f"{str(path)[:80]} cannot be read: {error.strerror}") from None
        if not has_run:
            raise RunError(f"{path} is not a run's folder{_hint_at_runs(path)}")
        folder = cls(path)
        header = folder.read_json(RUN)
        if header.get("format") != FORMAT:
            raise RunError(
                f"{path} was written by version {header.get('macro', '?')} of macro (format {header.get('format')!r});"
                f" this version reads {FORMAT}: read the folder with that version, or repeat the search in a new folder"
            )
        return folder

    # --- files ---------------------------------------------------------------------------------------------------

    @contextmanager
    def explain_write_errors(self, *, begun: bool = True) -> Iterator[None]:
        """Turn what the disk raises into an error that says how to go on."""
        try:
            yield
        except OSError as error:
            if begun and not self.path.is_dir():
                raise RunError(f"{self.path} has vanished; what was computed is in the score store") from None
            kept = f"what was computed is kept, fix the cause and `macro resume {self.path}`"
            remedy = kept if begun else "name another with --out"
            raise RunError(f"{str(self.path)[:200]} cannot be written: {describe_os_error(error)}; {remedy}") from None

    @contextmanager
    def explain_damaged_files(self, name: str) -> Iterator[None]:
        """Turn contents of the wrong shape into an error that says how to go on."""
        try:
            yield
        except (*_WRONG_SHAPE, NotationError, RouteError) as error:  # the last two: a route in it cannot be parsed
            raise RunError(self._describe_damaged_file(name, error)) from None

    def _describe_damaged_file(self, name: str, error: Exception) -> str:
        remedy = (
            "the run cannot be continued, but its scores are in the score store: the same `macro search` with"
            " another --out finds them there"
            if name == RUN
            else f"remove it and `macro resume {self.path}` makes it again"
        )
        return f"{self.path / name} is damaged ({type(error).__name__}: {error}); {remedy}"

    def has_file(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.path / name).is_file()

    def read_json(self, name: str) -> Any:
        """A JSON file's contents."""
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path / name} is missing; `macro resume {self.path}` makes it again") from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(self._describe_damaged_file(name, error)) from None
        if not isinstance(value, dict):
            raise RunError(self._describe_damaged_file(name, TypeError("it is not an object")))
        return value

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file whole or not at all."""
        self.write_text(name, json.dumps(value, indent=1, ensure_ascii=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        with self.explain_write_errors():
            write_atomically(self.path / name, redact_secrets(text))

    def log(self, text: str) -> None:
        """A line in the run's log."""
        with self.explain_write_errors(), open_regular_file(self.path / LOG) as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {redact_secrets(text)}\n")

    # --- the search's state ---------------------------------------------------------------------------------------

    def save_round(self, state: SearchState, report: dict[str, Any] | None) -> None:
        """Keep a state; the report of its last round goes first, so that no state is without one."""
        from macro_routing.search import save_state

        if report is not None:
            self.write_json(f"rounds/{state.rounds:03}.json", report)
        with self.explain_write_errors():
            if not self.path.is_dir():
                raise FileNotFoundError
            save_state(self.path / "states" / f"{state.rounds:03}.npz", state)

    def load_last_state(self) -> SearchState | None:
        """The state after the last finished round."""
        states = self._list_state_paths()
        return self._load_state(states[-1]) if states else None

    def load_evenly_spaced_states(self, maximum: int) -> list[SearchState]:
        """States from the first to the last, at most ``maximum``, evenly spaced."""
        states = self._list_state_paths()
        last, count = len(states) - 1, min(maximum, len(states))
        indices = sorted({round(last * number / max(count - 1, 1)) for number in range(count)})
        return [self._load_state(states[index]) for index in indices]

    def _list_state_paths(self) -> list[Path]:
        return sorted((self.path / "states").glob("[0-9]*.npz"))

    def _load_state(self, path: Path) -> SearchState:
        from macro_routing.search import load_state

        try:
            return load_state(path)
        except MacroError as error:
            raise RunError(f"{error}; remove the file and `macro resume {self.path}` repeats that round") from None

    def read_round_reports(self) -> list[dict[str, Any]]:
        """The reports of all finished rounds; one that somebody removed is left out."""
        state = self.load_last_state()
        names = [f"rounds/{number:03}.json" for number in range(1, state.rounds + 1)] if state else []
        return [use_current_names(self.read_json(name)) for name in names if self.has_file(name)]

    @contextmanager
    def time_round(self, number: int) -> Iterator[Callable[[], float]]:
        """What gives the seconds of a round so far, those before an interruption included."""
        earlier = self.read_interrupted_seconds(number)
        start = time.perf_counter()

        def get_seconds() -> float:
            return earlier + time.perf_counter() - start

        try:
            yield get_seconds
        except BaseException:
            with suppress(MacroError, OSError):
                self.write_json(INTERRUPTED, {"round": number, "seconds": get_seconds()})
            raise
        (self.path / INTERRUPTED).unlink(missing_ok=True)

    def read_interrupted_seconds(self, number: int) -> float:
        """Seconds of a round that was begun and interrupted."""
        try:
            saved = self.read_json(INTERRUPTED)
            seconds = float(saved["seconds"]) if saved["round"] == number else 0.0
        except (RunError, *_WRONG_SHAPE):
            return 0.0
        return seconds if 0 <= seconds < math.inf else 0.0

    def write_manifest(self) -> None:
        """Write the manifest: the run is complete."""
        # The report can be made again at any time, loggers write when they like.
        apart = {MANIFEST, REPORT, "lock", LOG}
        kept = [path for pattern in ("*.*", "states/*", "rounds/*", f"{ROUTERS}/*") for path in self.path.glob(pattern)]
        files = sorted(path for path in kept if path.is_file() and path.name not in apart)
        digests = {str(path.relative_to(self.path)): digest_file(path) for path in files}
        self.write_json(MANIFEST, {"format": FORMAT, "files": digests})

    def list_files_changed_since_finish(self) -> list[str]:
        """Files that are not what they were when the run was finished."""
        with self.explain_damaged_files(MANIFEST):
            known = self.read_json(MANIFEST).get("files", {}).items() if self.has_file(MANIFEST) else ()
            return [name for name, digest in known if self.has_file(name) and digest_file(self.path / name) != digest]

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete: it has a manifest, and all that it names."""
        if not self.has_file(MANIFEST):
            return False
        with self.explain_damaged_files(MANIFEST):
            return all(self.has_file(name) for name in self.read_json(MANIFEST).get("files", {}))

    # --- one process at a time ------------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out; the lock goes with the process, however it ends."""
        with self.explain_write_errors():
            self._make_folders()  # somebody may have removed one
            lock = acquire_lock(self.path / "lock")
        with lock:
            try:
                yield
            except KeyboardInterrupt:
                with suppress(RunError):
                    self.log("stopped on request")
                raise


def _entry_marks_folder_occupied(entry: Path) -> bool:
    """Whether a folder that has this in it is in use; a run that was stopped at once leaves empty parts behind."""
    return entry.name != "lock" and not (entry.is_dir() and not any(entry.iterdir()))


def _hint_at_runs(path: Path) -> str:
    """What a folder that is not a run's is, or which runs are beside it."""
    if (path / "study.json").is_file():
        return "; it is a study: repeat its `macro study` command to go on with it"
    if (path / "compare.html").is_file():
        return "; it is a comparison, whose runs are the folders in it: repeat `macro compare` to go on with it"
    near = sorted(str(file.parent) for file in path.parent.glob(f"*/{RUN}") if file.is_file())
    return f"; runs beside it: {', '.join(near[:5])}" if near else ""


def use_current_names(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a file with today's names; earlier versions wrote ``cut_off`` for the share of truncated answers."""
    return {"truncated_share" if name == "cut_off" else name: value for name, value in values.items()}
