"""A worker that one route kills, every time: what a bug in a kernel or a driver looks like from outside.

MACRO_CRASHING_ROUTE='L0 L5 RJ' python -m tests.faults.crashing_worker FD
"""

import os
import signal

from macro_routing.workers.worker import Worker, serve_work_items
from macro_routing.workers.worker_messages import work_item_from_json


class CrashingWorker(Worker):
    """Dies of the route that the environment names."""

    def handle_item(self, text: str) -> str:
        """A segmentation fault, or the answer."""
        _, ask = work_item_from_json(text)
        if os.environ["MACRO_CRASHING_ROUTE"] in map(str, ask.routes):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().handle_item(text)


if __name__ == "__main__":
    serve_work_items(CrashingWorker)
