"""Local workers as processes: how they end, and what happens where none can be had. Small programs stand in for them."""

import subprocess
import sys
import time
from pathlib import Path

from macro_routing.workers.processes import ProcessCrew

WAITS = "import time; time.sleep(600)"


def crew_of(program, slots=1):
    return ProcessCrew("setup", [{}] * slots, (sys.executable, "-c", program))


def events_of(crew, count, seconds=20.0):
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += crew.wait(0.2)
    return found


def is_running(number):
    status = Path(f"/proc/{number}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def test_what_a_worker_has_started_ends_with_it():
    crew = crew_of(
        "import subprocess, sys, socket, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "socket.socket(fileno=int(sys.argv[1])).sendall(f'{child.pid}\\n'.encode()); time.sleep(600)"
    )
    crew.start(0)
    (said,) = events_of(crew, 1)
    child = int(said.text)
    assert is_running(child)
    crew.close()
    end = time.monotonic() + 10
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(child)


def test_a_worker_that_does_not_end_when_killed_holds_nobody_up(monkeypatch):
    """Nothing real can be kept from ending here, so the waiting is played."""
    crew = crew_of(WAITS)
    crew.start(0)
    worker = crew._workers[0]
    real = worker.process.wait

    def never(timeout=None):
        assert timeout is not None, "waits for ever"
        raise subprocess.TimeoutExpired("worker", timeout)

    monkeypatch.setattr(worker.process, "wait", never)
    assert worker.end() == f"process {worker.process.pid} does not end even when killed"
    assert worker.socket.fileno() == -1
    assert worker.errors.closed
    real(timeout=20)
