"""Local workers as processes: how they end, and where none can be had. Small programs stand in for them."""

import errno
import gc
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.scoring_settings import UnitSizes
from macro_routing.evaluation.work_items import EvaluatorSpec, WorkItem
from macro_routing.routes import Route
from macro_routing.workers.dispatcher import Dispatcher
from macro_routing.workers.local_backend import LocalWorkerBackend
from macro_routing.workers.ray_backend import _describe_exit
from macro_routing.workers.worker_settings import WorkerError, WorkerSettings

WAITS = "import time; time.sleep(600)"


def make_backend(program, slots=1):
    return LocalWorkerBackend("setup", [{}] * slots, (sys.executable, "-c", program))


def events_of(backend, count, seconds=20.0):
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += backend.wait_for_events(0.2)
    return found


def is_running(number):
    try:
        return "State:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except OSError:
        return False


def test_what_a_worker_has_started_ends_with_it():
    backend = make_backend(
        "import subprocess, sys, socket, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "channel = socket.socket(fileno=int(sys.argv[1]));"
        "channel.sendall(f'{child.pid}\\n'.encode()); time.sleep(600)"
    )
    backend.start_worker(0)
    (said,) = events_of(backend, 1)
    child = int(said.text)
    assert is_running(child)
    backend.close()
    end = time.monotonic() + 60
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(child)


def test_a_worker_that_does_not_end_when_killed_holds_nobody_up(monkeypatch):
    """Nothing real can be kept from ending here, so the waiting is played."""
    backend = make_backend(WAITS)
    backend.start_worker(0)
    worker = backend._workers[0]
    real = worker.process.wait

    def never(timeout=None):
        assert timeout is not None, "waits for ever"
        raise subprocess.TimeoutExpired("worker", timeout)

    monkeypatch.setattr(worker.process, "wait", never)
    assert worker.kill_and_wait() == f"process {worker.process.pid} does not exit even when killed"
    assert worker.socket.fileno() == -1
    assert worker._output.closed
    real(timeout=60)


def test_a_secret_in_a_workers_last_words_is_struck_out_before_they_are_cut(monkeypatch):
    monkeypatch.setenv("STORAGE_KEY", "s3cr3t" * 5)
    backend = make_backend("import os, sys; sys.exit('x' * 285 + ' ' + os.environ['STORAGE_KEY'])")
    backend.start_worker(0)
    (gone,) = events_of(backend, 1)
    backend.close()
    assert gone.reason == f"exited with status 1 ({'x' * 285} [STORAGE_KEY])"


def test_a_secret_in_rays_words_is_struck_out_before_they_are_cut(monkeypatch):
    monkeypatch.setenv("STORAGE_KEY", "s3cr3t" * 5)
    assert _describe_exit(ValueError("x" * 285 + " " + "s3cr3t" * 5)) == f"{'x' * 285} [STORAGE_KEY]"


ANSWERS = """
import json, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("r") as lines:
    for number, _ in enumerate(lines):
        told = {"results": []} if number else {"ready": 1}
        channel.sendall((json.dumps(told) + chr(10)).encode())
"""


def refusing(monkeypatch, module, name, times, error):
    """The system's own refusals are played: a machine without processes or files to give would run no test either."""
    real, refused = getattr(module, name), []

    def refuse(*given, **named):
        if len(refused) < times:
            refused.append(name)
            raise error
        return real(*given, **named)

    monkeypatch.setattr(module, name, refuse)
    return refused


def open_files():
    """What this process has open: pipes, sockets and files, each by its own name."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists them
            found.add(str(entry.readlink()))
    return found


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        (subprocess, "Popen", BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")),
        (tempfile, "TemporaryFile", OSError(errno.ENOSPC, "No space left on device")),
    ],
)
def test_a_system_that_rejects_a_worker_is_asked_three_times(monkeypatch, module, name, error):
    items = [WorkItem((Route.standard(6),), ())]
    spec = EvaluatorSpec("t", DecodingSettings(), "auto", UnitSizes(), "scope")
    gc.collect()  # what earlier tests left open is not closed in between
    before = open_files()

    def run(times):
        refused = refusing(monkeypatch, module, name, times, error)
        backend = make_backend(ANSWERS)
        dispatcher = Dispatcher(backend, WorkerSettings(workers=1))
        try:
            return list(dispatcher.run_work_items(spec, items))
        finally:
            backend.close()
            monkeypatch.undo()
            assert len(refused) == min(times, 3)

    assert run(times=1) == [(items[0], ())]
    with pytest.raises(WorkerError, match=f"no worker can be started: the system cannot start it: .*{error.strerror}"):
        run(times=100)
    assert not open_files() - before


SPEAKS_SLOWLY = """
import json, socket, sys, time
with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("r") as lines:
    next(lines)
    channel.sendall((json.dumps({"ready": 1}) + chr(10)).encode())
    for _ in lines:
        for part in ('{"res', 'ults"', ': []}', chr(10)):
            time.sleep(0.8)
            channel.sendall(part.encode())
"""


def test_a_worker_in_the_middle_of_its_answer_is_not_taken_to_hang():
    """A long answer comes in parts; only one that says nothing at all is silent."""
    backend = make_backend(SPEAKS_SLOWLY)
    dispatcher = Dispatcher(backend, WorkerSettings(workers=1, worker_timeout=3 / 60))
    items = [WorkItem((Route.standard(6),), ())]
    try:
        assert list(
            dispatcher.run_work_items(EvaluatorSpec("t", DecodingSettings(), "auto", UnitSizes(), "scope"), items)
        ) == [(items[0], ())]
    finally:
        backend.close()
    assert dispatcher.counts.hangs == 0
