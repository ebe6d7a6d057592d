"""A worker that one route kills, every time: what a bug in a kernel or a driver looks like from outside.

MACRO_CURSED_ROUTE='L0 L5 RJ' python -m benchmarks.cursed_worker FD
"""

from __future__ import annotations

import os
import signal

from macro_routing.workers.messages import work_item_from_json
from macro_routing.workers.worker import Worker, main


class CursedWorker(Worker):
    """Dies of the route that the environment names."""

    def answer(self, text: str) -> str:
        """A segmentation fault, or the answer."""
        _, ask = work_item_from_json(text)
        if os.environ["MACRO_CURSED_ROUTE"] in map(str, ask.routes):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().answer(text)


if __name__ == "__main__":
    main(CursedWorker)
