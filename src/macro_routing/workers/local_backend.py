"""The local backend: one process per worker, JSON lines over a socket pair each."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO

from macro_routing.errors import without_secrets
from macro_routing.workers.backend import Event, Exited, Heartbeat, Message

COMMAND = (sys.executable, "-m", "macro_routing.workers.worker")
_BLOCK = 1 << 20
_DEATH_SECONDS = 10.0
"""A process that was killed is gone in milliseconds, or not at all."""


class _Process:
    """One worker and the driver's end of its socket."""

    def __init__(self, command: Sequence[str], setup: str, changes: Mapping[str, str]) -> None:
        """Raises OSError where the system has no process, no file or no room for it; nothing is left open then."""
        with ExitStack() as opened:
            ours, theirs = map(opened.enter_context, socket.socketpair())
            errors: IO[bytes] = opened.enter_context(tempfile.TemporaryFile())
            # A session of its own: Ctrl-C is the driver's, which ends its workers in order.
            self.process = subprocess.Popen(  # noqa: S603
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env={**os.environ, **changes},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            opened.pop_all()
            theirs.close()
        self.socket, self.errors = ours, errors  # closed with the worker
        self.socket.setblocking(False)
        self.incoming = b""
        self.outgoing = f"{setup}\n".encode()

    def lines(self) -> tuple[list[str], bool]:
        """Whole lines that have come, and whether the worker has closed its end."""
        closed = False
        with suppress(BlockingIOError):
            while not closed:
                try:
                    block = self.socket.recv(_BLOCK)
                except ConnectionResetError:
                    block = b""
                closed = not block
                self.incoming += block
        *whole, self.incoming = self.incoming.split(b"\n")
        return [line.decode() for line in whole], closed

    def send(self) -> None:
        """As much as the socket takes now; a worker that is gone is noticed when it is read from."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self.outgoing:
                self.outgoing = self.outgoing[self.socket.send(self.outgoing) :]

    def end(self) -> str:
        """Make sure that it has ended; says how it did."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1.0)  # a worker that closed its end is about to have a status
        self.kill()
        with self.socket, self.errors:
            try:
                return self._how(self.process.wait(timeout=_DEATH_SECONDS))
            except subprocess.TimeoutExpired:  # stuck in the kernel, as on a disk or a GPU that does not answer
                return f"process {self.process.pid} does not end even when killed"

    def kill(self) -> None:
        """With what it has started itself: the worker leads its group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _how(self, status: int) -> str:
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 4000))
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"{how} ({without_secrets(said[-1])[:300]})" if said and status > 0 else how


class LocalBackend:
    """Workers on this machine."""

    def __init__(self, setup: str, environments: Sequence[Mapping[str, str]], command: Sequence[str] = COMMAND) -> None:
        """One slot per environment: what is set in it differs from the driver's own."""
        self._setup = setup
        self._environments = environments
        self._command = command
        self._workers: dict[int, _Process] = {}
        self._selector = selectors.DefaultSelector()
        self._refused: list[Event] = []
        """Workers that could not be started, until ``wait`` tells of them."""

    def start(self, slot: int) -> None:
        """A new process."""
        self.kill(slot)
        try:
            worker = _Process(self._command, self._setup, self._environments[slot])
        except OSError as error:
            self._refused.append(Exited(slot, f"the system refuses it: {error}"))
            return
        self._workers[slot] = worker
        self._selector.register(worker.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, slot)

    def give(self, slot: int, text: str) -> None:
        """Sent while ``wait`` waits, so that a worker that does not read cannot hold the driver up."""
        worker = self._workers[slot]
        worker.outgoing += f"{text}\n".encode()
        self._selector.modify(worker.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, slot)

    def wait(self, seconds: float) -> Sequence[Event]:
        """Write what there is to write, read what has come."""
        events, self._refused = self._refused, []
        for key, mask in self._selector.select(0.0 if events else seconds):
            slot: int = key.data
            worker = self._workers[slot]
            if mask & selectors.EVENT_WRITE:
                worker.send()
                if not worker.outgoing:
                    self._selector.modify(worker.socket, selectors.EVENT_READ, slot)
            if mask & selectors.EVENT_READ:
                events += self._read(slot, worker)
        return events

    def _read(self, slot: int, worker: _Process) -> list[Event]:
        lines, closed = worker.lines()
        events: list[Event] = [Message(slot, line) for line in lines]
        if worker.incoming and not closed:
            events.append(Heartbeat(slot))
        if closed:
            events.append(Exited(slot, self._remove(slot)))
        return events

    def _remove(self, slot: int) -> str:
        worker = self._workers.pop(slot)
        self._selector.unregister(worker.socket)
        return worker.end()

    def kill(self, slot: int) -> None:
        """By signal, since a worker that hangs hears nothing else."""
        self._refused = [event for event in self._refused if event.slot != slot]
        if slot in self._workers:
            self._workers[slot].kill()
            self._remove(slot)

    def close(self) -> None:
        """End all; the signals first, so that they end together."""
        for worker in self._workers.values():
            worker.kill()
        for slot in list(self._workers):
            self._remove(slot)
        self._selector.close()
