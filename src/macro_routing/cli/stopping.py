"""Ctrl-C and requests to end: stop cleanly and say how to go on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

INTERRUPTED = 130
"""What shells give a command that was stopped by Ctrl-C."""
_ENDED = 143
"""What they give one that was asked to end."""


@contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into one line; what was computed is in the run's folder and the score store."""

    def how() -> str:
        begun = (folder / "run.json").is_file()
        return f"go on with: macro resume {folder}" if begun else "nothing was begun yet"

    with stopping_with(how):
        yield


@contextmanager
def stopping_with(how: str | Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C into one line that says ``how`` to go on."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nmacro: stopped; {how if isinstance(how, str) else how()}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def ending_gently() -> Iterator[None]:
    """Let a request to end (SIGTERM) run what cleans up; without this the process is gone at once."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
