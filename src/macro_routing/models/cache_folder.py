"""The user's cache folder of models, and digests and checksums of large files, which are kept there."""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from macro_routing.errors import ModelError, shorten_value
from macro_routing.files import checksum_file, digest_file, write_atomically

_DIGEST, _CHECKSUM = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{8}")


def get_macro_cache_folder() -> Path:
    """The folder of converted models: ``MACRO_CACHE_DIR``, or the user's cache folder."""
    if named := os.environ.get("MACRO_CACHE_DIR"):
        return expand_user_path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "macro-routing"
    except RuntimeError:
        raise ModelError("this user has no home folder; name a cache folder with MACRO_CACHE_DIR") from None


def expand_user_path(name: str) -> Path:
    """Expand ``~`` in a path; reject names that no file system takes."""
    try:
        path = Path(name).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as error:
        raise ModelError(f"{shorten_value(name)} is not a path: {error}") from None
    return path


def digest_file_cached(path: Path) -> str:
    """Digest a file; the digest is cached by path, size and modification time, since weights are large."""
    real = path.resolve()
    if _DIGEST.fullmatch(real.name):  # the hub's cache names a file by its own digest
        return real.name
    return _read_cached(_find_cache_file(real), _DIGEST, lambda: digest_file(real))


def checksum_file_cached(path: Path) -> str:
    """Compute the checksum of a file, cached in the same way."""
    return _read_cached(_find_cache_file(path.resolve(), ".crc32"), _CHECKSUM, lambda: checksum_file(path))


def remember_file_checksum(path: Path, checksum: str) -> None:
    """Cache the known checksum of a file as it is now."""
    _write_cached(_find_cache_file(path.resolve(), ".crc32"), checksum)


def _read_cached(cache_file: Path, pattern: re.Pattern[str], compute: Callable[[], str]) -> str:
    if cache_file.is_file() and pattern.fullmatch(cached := cache_file.read_text(encoding="utf-8")):
        return cached
    value = compute()
    _write_cached(cache_file, value)
    return value


def _write_cached(cache_file: Path, value: str) -> None:
    with contextlib.suppress(OSError):  # a read-only cache only costs the time to read the file again
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(cache_file, value, concurrent=True)


def _find_cache_file(real: Path, suffix: str = "") -> Path:
    status = real.stat()
    identity = [str(real), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    name = hashlib.sha256("\n".join(map(str, identity)).encode()).hexdigest()[:32]
    return get_macro_cache_folder() / "digests" / f"{name}{suffix}"
