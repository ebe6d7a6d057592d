"""Ctrl-C: stop cleanly and say how to go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

INTERRUPTED = 130
"""What shells give a command that was stopped by Ctrl-C."""


@contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into one line; what was computed is in the run's folder and the score store."""
    try:
        yield
    except KeyboardInterrupt:
        begun = (folder / "run.json").is_file()
        how = f"go on with: macro resume {folder}" if begun else "nothing was begun yet"
        print(f"\nmacro: stopped; {how}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
