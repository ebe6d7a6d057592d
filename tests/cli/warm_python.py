"""A Python that has loaded the heavy libraries once and becomes, in a fork, each command or script it is asked for.

The fork leaves the loop below and goes on as ``python -m macro_routing.cli.main`` would: it runs the module as
``__main__`` and ends as Python ends, with its own exit status, tracebacks, threads and exit handlers. That is why this
is not ``multiprocessing``'s fork server: its children have a start method and a parent that are not the command's, may
load the caller's ``__main__``, and call no exit handlers.

Only what others wrote is loaded beforehand: the libraries that are named, the usual ones, or nothing with ``--cold``.
What the command imports of ours it still imports itself.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path

LIBRARIES = (
    *("numpy", "torch", "transformers", "transformers.models.auto.tokenization_auto"),
    *("transformers.models.llama.modeling_llama", "accelerate", "safetensors.torch", "typer.rich_utils", "yaml"),
    *("scipy.stats", "pydantic.types", "sqlite3", "tomllib"),
)
LONGEST = 1 << 20
"""Bytes of one request; arguments and a folder are far below."""


def next_command(caller):
    """What is to be run, in the process that is to run it; its folder and its three streams are set."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command; this one ends with its caller
    while True:
        request, streams, *_ = socket.recv_fds(caller, LONGEST, 3)
        if not request:
            sys.exit()
        if child := os.fork():
            for stream in streams:
                os.close(stream)
            caller.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
            continue
        signal.signal(signal.SIGINT, interrupt)
        caller.close()
        for number, stream in enumerate(streams):  # sys.stdin, stdout and stderr were not used so far: they fit
            os.dup2(stream, number)
            os.close(stream)
        order = json.loads(request)
        os.chdir(order["cwd"])
        sys.path[0] = str(Path.cwd())  # as python -m does
        return order


def leave(ended):
    """End where Python would take its modules down, object by object, which takes longer than most commands.

    All else of an end is past: threads were waited for, exit handlers called. Fresh commands cover the rest.
    """
    if ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])
    gc.unfreeze()


if __name__ == "__main__":
    ended = []
    atexit.register(leave, ended)  # the first that is registered is the last that is called
    for name in () if "--cold" in sys.argv else sys.argv[2:] or LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # else each fork would look through all of them, and copy them by that
    # A fork has only the thread that forked; a lock that another one holds would never be opened in it.
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a library started a thread when it was imported"
    order = next_command(socket.socket(fileno=int(sys.argv[1])))
    try:
        if order["script"]:
            sys.argv = [order["script"], *order["arguments"]]
            runpy.run_path(order["script"], run_name="__main__")
        else:
            sys.argv[1:] = order["arguments"]
            runpy.run_module("macro_routing.cli.main", run_name="__main__", alter_sys=True)
    except SystemExit as stop:  # all other ends are left to Python
        if stop.code is None or isinstance(stop.code, int):
            ended.append((stop.code or 0) & 0xFF)
        raise
