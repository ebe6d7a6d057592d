"""Ctrl-C and requests to end: stop cleanly and say how to go on."""

import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from macro_routing.runs.folder import RUN

INTERRUPTED = 130
"""What shells give a command that was stopped by Ctrl-C."""
ENDED = 143
"""What they give one that was asked to end."""


class SigtermInterrupt(KeyboardInterrupt):
    """A request to end (SIGTERM), as batch systems and service managers send it; all that Ctrl-C cleans up, it does."""


@contextmanager
def stop_with_resume_hint(folder: Path, flags: Sequence[str] = ()) -> Iterator[None]:
    """Turn Ctrl-C and a request to end into one line; what was computed is in the run's folder and the score store.

    ``flags`` are those without which the run is not resumed, or not with the same score store.
    """

    def make_resume_hint() -> str:
        begun = (folder / RUN).is_file()
        command = shlex.join(["macro", "resume", str(folder), *flags])
        return f"go on with: {command}" if begun else "nothing was begun yet"

    with show_hint_on_interrupt(make_resume_hint):
        yield


def make_store_flags(store: Path | None) -> list[str]:
    """The flags of the store that a call names; a run's folder alone leads to no store elsewhere."""
    return [] if store is None else ["--store", str(store)]


@contextmanager
def show_hint_on_interrupt(hint: str | Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C and a request to end into one line with the ``hint`` how to go on."""
    try:
        with _handle_termination():
            yield
    except KeyboardInterrupt as stop:
        print(f"\nmacro: stopped; {hint if isinstance(hint, str) else hint()}", file=sys.stderr)
        raise typer.Exit(ENDED if isinstance(stop, SigtermInterrupt) else INTERRUPTED) from None


@contextmanager
def _handle_termination() -> Iterator[None]:
    """Let a request to end run what cleans up; without this the process is gone at once."""
    if threading.current_thread() is not threading.main_thread():  # where no handler can be set
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise_termination)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_termination(*_: Any) -> None:
    raise SigtermInterrupt
