"""A worker: loads the model once, then answers asks until nobody asks any more.

    python -m macro_routing.workers.worker FD

is how the local backend starts one; FD is a socket on which lines of JSON come and go. Standard output is left to
whatever the libraries print.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from macro_routing.engine.decoders import fused_unsupported_reason
from macro_routing.errors import MacroError
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.models.frozen import load_model
from macro_routing.models.remote import RemoteModelInfo
from macro_routing.tasks.task import Task
from macro_routing.workers.messages import (
    Assignment,
    WorkerSetup,
    results_to_json,
    scope_digest,
    work_item_from_json,
)

_DIE_WITH_PARENT = 1
"""prctl's PR_SET_PDEATHSIG."""


class Worker:
    """A loaded model and the tasks it is asked about; the same in a process of ours and in a Ray actor."""

    def __init__(self, setup: WorkerSetup) -> None:
        """Load everything; what is wrong with it is raised here."""
        self._notes: list[str] = []
        self._frozen = load_model(setup.model, setup.loading)
        self._sources = list(setup.tasks)
        self._tasks: dict[str, Task] = {}
        self._evaluators: dict[str, Evaluator] = {}

    @property
    def facts(self) -> RemoteModelInfo:
        """What a driver without weights has to know."""
        model = self._frozen.model
        dtype = str(model.dtype).removeprefix("torch.")
        ids = self._frozen.weights_id, self._frozen.numerics_id
        return RemoteModelInfo(*ids, model.device.type, dtype, fused_unsupported_reason(model))

    def answer(self, text: str) -> str:
        """A job's text → its answer's text; mistakes of a user come back as such, anything else is raised."""
        assignment, ask = work_item_from_json(text)
        try:
            found = {"answers": results_to_json(self._evaluator(assignment).run_work_item(ask))}
        except MacroError as error:
            return json.dumps({"error": str(error), "class": type(error).__name__})
        text = json.dumps({**found, "notes": self._notes})
        self._notes.clear()
        return text

    def _evaluator(self, assignment: Assignment) -> Evaluator:
        if assignment.scope not in self._evaluators:
            made = assignment.evaluator(self._frozen, self._task(assignment.task), self._notes.append)
            if scope_digest(made.scope) != assignment.scope:
                raise MacroError(
                    "a worker has other numerics, prompts or grading than the search that asks it;"
                    " workers need the same model, data files, device and versions of torch and transformers:"
                    f" {json.dumps(made.scope, sort_keys=True)}"
                )
            self._evaluators[assignment.scope] = made
        return self._evaluators[assignment.scope]

    def _task(self, name: str) -> Task:
        while name not in self._tasks and self._sources:
            found = self._sources.pop(0).find()
            self._tasks[found.name] = found
        if name not in self._tasks:
            raise MacroError(f"a worker does not know the task {name}")
        return self._tasks[name]


def begin(setup: str, make: Callable[[WorkerSetup], Worker] = Worker) -> tuple[Worker | None, str]:
    """A worker and its first message: that it is ready, or what a user has to mend."""
    try:
        worker = make(WorkerSetup.from_text(setup))
        return worker, json.dumps({"ready": os.getpid(), "facts": dataclasses.asdict(worker.facts)})
    except MacroError as error:
        return None, json.dumps({"error": str(error), "class": type(error).__name__})


def serve(channel: socket.socket, make: Callable[[WorkerSetup], Worker] = Worker) -> None:
    """Answer line by line; the other end's closing, however it came about, ends it."""
    with channel, channel.makefile("r", encoding="utf-8") as lines:

        def send(text: str) -> None:
            channel.sendall(f"{text}\n".encode())

        worker, first = begin(next(lines), make)
        send(first)
        if worker is not None:
            for line in lines:
                send(worker.answer(line))


def main(make: Callable[[WorkerSetup], Worker] = Worker) -> None:
    """Serve on the socket whose number is the argument."""
    _die_with_parent()
    _quiet()
    try:
        serve(socket.socket(fileno=int(sys.argv[1])), make)
    except (BrokenPipeError, ConnectionResetError, StopIteration):
        sys.exit(0)  # the driver is gone


def _die_with_parent() -> None:
    """Ask Linux to end this process with the driver: a worker that hangs would not notice that it is alone."""
    if sys.platform == "linux":
        libc: Any = ctypes.CDLL(None)
        libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _quiet() -> None:
    from transformers.utils import logging as advice

    advice.set_verbosity_error()  # type: ignore[no-untyped-call]
    advice.disable_progress_bar()  # type: ignore[no-untyped-call]
    os.environ.setdefault("TQDM_DISABLE", "1")


if __name__ == "__main__":
    main()
