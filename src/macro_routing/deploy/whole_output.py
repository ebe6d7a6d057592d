"""Output that appears whole or not at all: room is checked first, files are written beside their place, then moved."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from macro_routing.errors import ExportError

_SPARE = 16 << 20
"""Room for tokenizer, model card and the file system's own needs."""


@contextmanager
def whole_output(out: Path, needed: int) -> Iterator[Path]:
    """A place to write a file or folder of about ``needed`` bytes, which becomes ``out`` if nothing goes wrong."""
    try:
        _refuse_existing(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        _check_room(out, needed + _SPARE)
        scratch = Path(tempfile.mkdtemp(prefix=f".{out.name[:100]}.unfinished-", dir=out.parent))
        try:
            yield scratch / out.name
            _refuse_existing(out)
            (scratch / out.name).rename(out)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else (error.strerror or str(error))
        raise ExportError(f"{str(out)[:200]} cannot be written: {reason}; name another place with --out") from None


def _refuse_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise ExportError(f"{out} exists already; remove it or name another place with --out")


def _check_room(out: Path, needed: int) -> None:
    free = shutil.disk_usage(out.parent).free
    if free < needed:
        raise ExportError(
            f"{out} needs {_size(needed)}, but only {_size(free)} are free there; nothing was written:"
            " free some room, or name another disk with --out"
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
