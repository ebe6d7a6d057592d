"""Output that appears whole or not at all: room is checked first, files are written beside their place, then moved."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from macro_routing.errors import ExportError

_SPARE = 16 << 20
"""Room for tokenizer, model card and the file system's own needs."""


@contextmanager
def whole_output(out: Path, needed: int) -> Iterator[Path]:
    """A place to write a file or folder of about ``needed`` bytes, which becomes ``out`` if nothing goes wrong."""
    try:
        _refuse_existing(out)
        _check_room(out, needed + _SPARE)
        with _folder_of(out), _scratch_beside(out) as scratch:
            yield scratch / out.name
            _refuse_existing(out)
            (scratch / out.name).rename(out)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else (error.strerror or str(error))
        raise ExportError(f"{str(out)[:200]} cannot be written: {reason}; name another place with --out") from None


@contextmanager
def _folder_of(out: Path) -> Iterator[None]:
    """Make the folders above ``out``; those that were not there before go again if nothing comes of it."""
    new = [folder for folder in out.parents if not folder.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in new:
            with suppress(OSError):  # never made, or something else lies there by now
                folder.rmdir()
        raise


@contextmanager
def _scratch_beside(out: Path) -> Iterator[Path]:
    """A folder on the same disk, gone afterwards; its name is short enough for any file system."""
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name[:40]}.unfinished-", dir=out.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _refuse_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise ExportError(f"{out} exists already; remove it or name another place with --out")


def _check_room(out: Path, needed: int) -> None:
    there = next(folder for folder in out.absolute().parents if folder.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise ExportError(
            f"{out} needs {_size(needed)}, but only {_size(free)} are free there; nothing was written:"
            " free some room, or name another disk with --out"
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
