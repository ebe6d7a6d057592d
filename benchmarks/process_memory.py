"""How much memory a process and its children hold, as Linux counts it."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_EVERY = 0.1
"""Seconds between two looks."""


def process_tree_memory(pid: int) -> float:
    """MB resident now in a process and all below it; what several of them share, such as libraries, counts in each."""
    return sum(_resident_bytes(one) for one in _iterate_process_tree(pid)) / 1e6


def _iterate_process_tree(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):  # a process that has ended meanwhile
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text(encoding="ascii").split():
                yield from _iterate_process_tree(int(child))


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


class PeakMemoryMonitor:
    """Looks at a process again and again; ``peak`` is the most it held at any look, in MB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample_periodically, daemon=True)
        self.peak = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def sample(self) -> float:
        """What it holds now."""
        now = process_tree_memory(self._pid)
        self.peak = max(self.peak, now)
        return now

    def _sample_periodically(self) -> None:
        while not self._done.wait(_EVERY):
            self.sample()
