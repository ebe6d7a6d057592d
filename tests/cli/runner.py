"""Runs the command as a user does, in a process of its own."""

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

# One thread each: the suite runs one process per core already.
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
PROGRAM = [sys.executable, "-m", "macro_routing.cli.main"]
SECONDS = 600
# A driver of a GPU that was asked once, if only for their number, is of no use after a fork.
CAN_FORK = sys.platform == "linux" and not Path("/dev/nvidiactl").exists()


def run(*arguments, status=0, stdin=None, code=None, cwd=None, environment=ENVIRONMENT, fresh=False):
    """Run ``macro`` with ``arguments`` (or Python ``code``) and insist on its exit status.

    A command is a fork of a Python that has torch loaded already, which saves seconds. It is a Python of its own where
    that could hide something: with another environment, which libraries read when they are imported, and when it is to
    be ``fresh``. Forks share the order of their sets and what libraries say when they are imported; so tests of
    repetition and of all that is printed are fresh, and so are the commands of the pages in ``make test-engines``.
    """
    command = [sys.executable, "-c", code] if code else [*PROGRAM, *map(str, arguments)]
    if code or fresh or environment is not ENVIRONMENT or not CAN_FORK:
        done = subprocess.run(
            command, capture_output=True, text=True, input=stdin, env=environment, cwd=cwd, check=False, timeout=SECONDS
        )
    else:
        done = _forked(_warm_python(), command, {"arguments": command[len(PROGRAM) :], "script": None}, stdin, cwd)
    assert done.returncode == status, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run_script(path, *arguments, cwd=None, status=0):
    """Run a file of Python with the heavy libraries loaded already, and insist on its exit status."""
    command = [sys.executable, str(path), *map(str, arguments)]
    if CAN_FORK:
        done = _forked(_warm_python(), command, {"arguments": command[2:], "script": str(path)}, None, cwd)
    else:
        done = subprocess.run(
            command, capture_output=True, text=True, env=ENVIRONMENT, cwd=cwd, check=False, timeout=SECONDS
        )
    assert done.returncode == status, f"{path} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def run_elsewhere(python, libraries, environment, *arguments, status=0, fresh=False):
    """Run ``macro`` in another environment's Python, forked from one that has loaded ``libraries`` there."""
    command = [str(python), *PROGRAM[1:], *map(str, arguments)]
    if CAN_FORK and not fresh:
        warm = _warm_python(str(python), tuple(libraries), tuple(environment.items()))
        done = _forked(warm, command, {"arguments": command[len(PROGRAM) :], "script": None}, None, None)
    else:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=SECONDS)
    assert done.returncode == status, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def _forked(warm, command, order, stdin, cwd):
    with contextlib.ExitStack() as opened:
        streams = [opened.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
        streams[0].write(stdin or "")
        streams[0].seek(0)
        status = _ended(warm, order, cwd, streams)
        for stream in streams[1:]:
            stream.seek(0)
        return subprocess.CompletedProcess(command, status, *(stream.read() for stream in streams[1:]))


def _ended(server, order, cwd, streams):
    """The exit status, negative for a signal; as with subprocess, nothing that is given up on goes on."""
    request = json.dumps({**order, "cwd": str(cwd or Path.cwd())}).encode()
    server.connection.settimeout(SECONDS)
    try:
        socket.send_fds(server.connection, [request], [stream.fileno() for stream in streams])
        answer = server.connection.recv(100)
    except BaseException:
        # The answer may still be on its way, and the next command would take it for its own: nobody may ask this
        # Python again.
        server.end()
        raise
    assert answer, "the warm Python ended; it says why on standard error"
    return int(answer)


class _WarmPython:
    """The Python that commands are forked from, in a process group with them; it ends when its connection does."""

    def __init__(self, python=sys.executable, libraries=(), environment=()):
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [python, Path(__file__).with_name("warm_python.py"), str(theirs.fileno()), *libraries],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=dict(environment) or ENVIRONMENT,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        atexit.register(self.end)

    def end(self):
        """Kill it and whatever it runs; the next command has another one."""
        _warm_python.cache_clear()
        self.connection.close()
        if self.process.poll() is None:  # else its number may be somebody else's by now
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@functools.cache
def _warm_python(*where):
    """This process's one of an environment."""
    return _WarmPython(*where)


def shell_status(returncode):
    """The status as a shell gives it, 128 plus the signal.

    Where Ctrl-C interrupts the ``exec`` of a text, as dataclasses use it on import, ``python -m`` ends by the signal,
    although the program caught it and exits with 130.
    """
    return returncode if returncode >= 0 else 128 - returncode
