"""Files that are written completely or not at all, and locks between processes."""

import errno
import hashlib
import math
import mmap
import os
import platform
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from macro_routing.errors import RunError

UNFINISHED = ".unfinished"
"""Suffix of a file that is being written. A process that is killed leaves it; the next write replaces it."""


def write_atomically(path: Path, data: str | bytes, *, concurrent: bool = False) -> None:
    """Write a file completely or not at all; a previous file stays as it was until then."""
    with open_atomically(path, concurrent=concurrent) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def replace_non_finite(value: Any) -> Any:
    """NaN and infinity as null, since JSON has neither."""
    if isinstance(value, Mapping):
        return {str(key): replace_non_finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def open_atomically(path: Path, *, concurrent: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` once it is complete and on the disk.

    With ``concurrent`` several processes may write the same file at the same time; the last one wins.
    """
    temporary = path.with_name(f"{path.name}{f'.{os.getpid()}' if concurrent else ''}{UNFINISHED}")
    temporary.unlink(missing_ok=True)  # a symbolic link there would lead out of the folder
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def atomic_output(path: Path) -> Iterator[Path]:
    """Yield a temporary path on the same disk; the file or folder made there is moved to ``path`` at the end.

    If anything fails, nothing stays behind, parent folders that did not exist before included.
    """
    new_parents = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The prefix is short enough for any file system.
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name[:40]}{UNFINISHED}-", dir=path.parent))
        try:
            yield scratch / path.name
            (scratch / path.name).rename(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except BaseException:
        for folder in new_parents:
            with suppress(OSError):  # it was never made, or another process uses it by now
                folder.rmdir()
        raise


def digest_file(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_file(path: Path) -> str:
    """CRC-32 of a file's content: it tells accidental changes, several times as fast as a digest."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return f"{zlib.crc32(content):08x}"


def describe_os_error(error: OSError) -> str:
    """The reason of a file error in words."""
    return "the disk is full" if error.errno == errno.ENOSPC else (error.strerror or str(error))


def open_regular_file(path: Path) -> TextIO:
    """Open a file for appending and reading; reject links and pipes, since a folder may come from somebody else."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RunError(f"{path} is a symbolic link, which is never written through; remove it") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunError(f"{path} is not a regular file; remove it")
    return os.fdopen(descriptor, "a+", encoding="utf-8")


def acquire_lock(path: Path, *, wait: bool = False) -> TextIO:
    """Lock a file for this process until the returned file is closed or the process ends, however it ends.

    Without ``wait``, a lock that another process holds is an error that names that process.
    """
    import fcntl

    file = open_regular_file(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        file.flush()
    except BaseException as error:
        with file:
            file.seek(0)
            holder = file.read().strip() or "another process"
        if isinstance(error, BlockingIOError):
            message = f"{path.parent} is in use by {holder}; wait for it, or stop it with Ctrl-C there"
            raise RunError(message) from None
        raise
    return file
