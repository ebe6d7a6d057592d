"""The local backend: one process per worker, JSON lines over a socket pair each."""

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

from macro_routing.errors import redact_secrets
from macro_routing.workers.backend import Event, MessageFromWorker, WorkerExited, WorkerHeartbeat

COMMAND = (sys.executable, "-m", "macro_routing.workers.worker")
_BLOCK_BYTES = 1 << 20
_EXIT_SECONDS = 10.0
"""A process that was killed exits within milliseconds, or not at all."""


class _WorkerProcess:
    """One worker process and the driver's end of its socket."""

    def __init__(self, command: Sequence[str], setup: str, environment: Mapping[str, str]) -> None:
        """Start the process; raises OSError if the system has no resources for it, and leaves nothing open then."""
        with ExitStack() as stack:
            ours, theirs = map(stack.enter_context, socket.socketpair())
            output: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            # A session of its own: only the driver gets Ctrl-C, and ends its workers in order.
            self.process = subprocess.Popen(  # noqa: S603
                [*command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            stack.pop_all()
            theirs.close()
        self.socket, self._output = ours, output  # closed with the worker
        self.socket.setblocking(False)
        self.incoming = b""
        self.outgoing = f"{setup}\n".encode()

    def receive_complete_lines(self) -> tuple[list[str], bool]:
        """Complete lines that arrived, and whether the worker closed its end."""
        closed = False
        with suppress(BlockingIOError):
            while not closed:
                try:
                    block = self.socket.recv(_BLOCK_BYTES)
                except ConnectionResetError:
                    block = b""
                closed = not block
                self.incoming += block
        *lines, self.incoming = self.incoming.split(b"\n")
        return [line.decode() for line in lines], closed

    def flush_outgoing(self) -> None:
        """Send as much as the socket takes now; an exit of the worker is noticed when its socket is read."""
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self.outgoing:
                self.outgoing = self.outgoing[self.socket.send(self.outgoing) :]

    def kill_and_wait(self) -> str:
        """Kill the process if it still runs, and say how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1.0)  # a worker that closed its end is about to exit
        self.kill_group()
        with self.socket, self._output:
            try:
                return self._describe_exit(self.process.wait(timeout=_EXIT_SECONDS))
            except subprocess.TimeoutExpired:  # stuck in the kernel, as with a disk or a GPU that does not respond
                return f"process {self.process.pid} does not exit even when killed"

    def kill_group(self) -> None:
        """Kill the worker and the processes that it started: it leads their group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _describe_exit(self, status: int) -> str:
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 4000))
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return f"{how} ({redact_secrets(lines[-1])[:300]})" if lines and status > 0 else how


class LocalWorkerBackend:
    """Workers on this machine."""

    def __init__(self, setup: str, environments: Sequence[Mapping[str, str]], command: Sequence[str] = COMMAND) -> None:
        """One slot per environment; its variables are added to the driver's own."""
        self._setup = setup
        self._environments = environments
        self._command = command
        self._workers: dict[int, _WorkerProcess] = {}
        self._selector = selectors.DefaultSelector()
        self._failed_starts: list[Event] = []
        """Workers that could not be started, until the next ``wait_for_events``."""

    def start_worker(self, slot: int) -> None:
        """Start a new process."""
        self.kill_worker(slot)
        try:
            worker = _WorkerProcess(self._command, self._setup, self._environments[slot])
        except OSError as error:
            self._failed_starts.append(WorkerExited(slot, f"the system cannot start it: {error}"))
            return
        self._workers[slot] = worker
        self._selector.register(worker.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, slot)

    def send_message(self, slot: int, text: str) -> None:
        """Queue a line; ``wait_for_events`` sends it, so that a worker that does not read cannot block the driver."""
        worker = self._workers[slot]
        worker.outgoing += f"{text}\n".encode()
        self._selector.modify(worker.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, slot)

    def wait_for_events(self, seconds: float) -> Sequence[Event]:
        """Send queued lines and read what arrived."""
        events, self._failed_starts = self._failed_starts, []
        for key, mask in self._selector.select(0.0 if events else seconds):
            slot: int = key.data
            worker = self._workers[slot]
            if mask & selectors.EVENT_WRITE:
                worker.flush_outgoing()
                if not worker.outgoing:
                    self._selector.modify(worker.socket, selectors.EVENT_READ, slot)
            if mask & selectors.EVENT_READ:
                events += self._read_worker_events(slot, worker)
        return events

    def _read_worker_events(self, slot: int, worker: _WorkerProcess) -> list[Event]:
        lines, closed = worker.receive_complete_lines()
        events: list[Event] = [MessageFromWorker(slot, line) for line in lines]
        if worker.incoming and not closed:
            events.append(WorkerHeartbeat(slot))
        if closed:
            events.append(WorkerExited(slot, self._kill_and_remove_worker(slot)))
        return events

    def _kill_and_remove_worker(self, slot: int) -> str:
        worker = self._workers.pop(slot)
        self._selector.unregister(worker.socket)
        return worker.kill_and_wait()

    def kill_worker(self, slot: int) -> None:
        """End a worker by signal, since a worker that hangs reads no message."""
        self._failed_starts = [event for event in self._failed_starts if event.slot != slot]
        if slot in self._workers:
            self._workers[slot].kill_group()
            self._kill_and_remove_worker(slot)

    def close(self) -> None:
        """End all workers; signals are sent first, so that they end at the same time."""
        for worker in self._workers.values():
            worker.kill_group()
        for slot in list(self._workers):
            self._kill_and_remove_worker(slot)
        self._selector.close()
