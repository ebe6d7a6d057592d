"""A worker: loads the model once, then runs work items until the driver closes the connection.

    python -m macro_routing.workers.worker FD

is how the local backend starts one; FD is a socket that carries lines of JSON in both directions. Standard output is
left to what the libraries print.
"""

import ctypes
import dataclasses
import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from macro_routing.engine.decoders import fused_unsupported_reason
from macro_routing.errors import MacroError
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.work_items import EvaluatorSpec
from macro_routing.models.frozen import FrozenModel, RemoteModelInfo, load_model
from macro_routing.tasks.task import Task
from macro_routing.workers.worker_messages import WorkerSetup, encode_worker_results, work_item_from_json

_PR_SET_PDEATHSIG = 1
"""Option of prctl."""


class Worker:
    """A loaded model and the tasks of its work items; the same in a local process and in a Ray actor."""

    def __init__(self, setup: WorkerSetup) -> None:
        """Load the model; errors of the user are raised here."""
        self._notes: list[str] = []
        self._frozen = load_model(setup.model, setup.loading)
        self._sources = list(setup.tasks)
        self._tasks: dict[str, Task] = {}
        self._evaluators: dict[str, Evaluator] = {}

    @property
    def model_facts_for_driver(self) -> RemoteModelInfo:
        """What a driver without weights has to know."""
        model = self._frozen.model
        return RemoteModelInfo(
            self._frozen.weights_id,
            self._frozen.numerics_id,
            model.device.type,
            str(model.dtype).removeprefix("torch."),
            fused_unsupported_reason(model),
        )

    def handle_item(self, text: str) -> str:
        """Run a work item and return its results as JSON; errors of a user are returned, others are raised."""
        spec, item = work_item_from_json(text)
        try:
            results = encode_worker_results(self._get_evaluator(spec).run_work_item(item))
        except MacroError as error:
            return _error_to_json(error)
        reply = json.dumps({"results": results, "notes": self._notes})
        self._notes.clear()
        return reply

    def _get_evaluator(self, spec: EvaluatorSpec) -> Evaluator:
        if spec.scope not in self._evaluators:
            evaluator = build_worker_evaluator(
                spec, self._frozen, self._find_or_load_task(spec.task), self._notes.append
            )
            if evaluator.worker_spec.scope != spec.scope:
                raise MacroError(
                    "a worker has other numerics, prompts or grading than the search that it works for;"
                    " workers need the same model, data files, device and versions of torch and transformers:"
                    f" {json.dumps(evaluator.scope, sort_keys=True)}"
                )
            self._evaluators[spec.scope] = evaluator
        return self._evaluators[spec.scope]

    def _find_or_load_task(self, name: str) -> Task:
        while name not in self._tasks and self._sources:
            task = self._sources.pop(0).load_task()
            self._tasks[task.name] = task
        if name not in self._tasks:
            raise MacroError(f"a worker does not know the task {name}")
        return self._tasks[name]


def build_worker_evaluator(
    spec: EvaluatorSpec, frozen: FrozenModel, task: Task, report: Callable[[str], None]
) -> Evaluator:
    """The evaluator that runs a spec's items; it stores nothing."""
    return Evaluator(frozen, task, spec.decoding, None, spec.sizes, spec.decoder, report)


def start_worker(setup: str, make_worker: Callable[[WorkerSetup], Worker] = Worker) -> tuple[Worker | None, str]:
    """A worker and its first message: that it is ready, or an error that the user has to fix."""
    try:
        worker = make_worker(WorkerSetup.from_json(setup))
        return worker, json.dumps({"ready": os.getpid(), "facts": dataclasses.asdict(worker.model_facts_for_driver)})
    except MacroError as error:
        return None, _error_to_json(error)


def _error_to_json(error: MacroError) -> str:
    return json.dumps({"error": str(error), "class": type(error).__name__})


def serve_socket(channel: socket.socket, make_worker: Callable[[WorkerSetup], Worker] = Worker) -> None:
    """Answer line by line until the driver's end is closed."""
    with channel, channel.makefile("r", encoding="utf-8") as lines:

        def send_line(text: str) -> None:
            channel.sendall(f"{text}\n".encode())

        worker, first = start_worker(next(lines), make_worker)
        send_line(first)
        if worker is not None:
            for line in lines:
                send_line(worker.handle_item(line))


def serve_work_items(make_worker: Callable[[WorkerSetup], Worker] = Worker) -> None:
    """Serve on the socket whose number is the argument."""
    _exit_with_parent()
    _silence_transformers()
    try:
        serve_socket(socket.socket(fileno=int(sys.argv[1])), make_worker)
    except (BrokenPipeError, ConnectionResetError, StopIteration):
        sys.exit(0)  # the driver exited


def _exit_with_parent() -> None:
    """Ask Linux to end this process with the driver: a worker that hangs would not notice that the driver exited."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _silence_transformers() -> None:
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    os.environ.setdefault("TQDM_DISABLE", "1")


if __name__ == "__main__":
    serve_work_items()
