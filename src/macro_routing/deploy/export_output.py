"""The output of an export: free space is checked first, and a failed export leaves nothing behind."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from macro_routing.errors import ExportError
from macro_routing.files import atomic_output, describe_os_error

_SPARE_BYTES = 16 << 20
"""Space for tokenizer, model card and the file system's own needs."""


@contextmanager
def export_output(out: Path, n_bytes: int) -> Iterator[Path]:
    """Yield a temporary path for a file or folder of about ``n_bytes``, which is moved to ``out`` at the end."""
    try:
        _check_not_existing(out)
        _check_free_space(out, n_bytes + _SPARE_BYTES)
        with atomic_output(out) as temporary:
            yield temporary
            _check_not_existing(out)
    except OSError as error:
        raise ExportError(
            f"{str(out)[:200]} cannot be written: {describe_os_error(error)}; choose another path with --out"
        ) from None


def _check_not_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise ExportError(f"{out} exists already; remove it or choose another path with --out")


def _check_free_space(out: Path, n_bytes: int) -> None:
    folder = next(folder for folder in out.absolute().parents if folder.exists())
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise ExportError(
            f"{out} needs {_format_size(n_bytes)}, but only {_format_size(free)} are free there; nothing was written:"
            " free some space, or choose another disk with --out"
        )


def _format_size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
