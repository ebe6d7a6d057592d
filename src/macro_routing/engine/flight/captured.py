"""CUDA graphs of whole decoding steps, captured when they are first wanted and replayed from then on.

Between two graphs the device rests for as long as a small layer takes, so a step is one graph. What it launches depends
on the order of layers and the numbers of rows alone; the same graph serves every token, and every batch that is alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch

_KEPT = 64
"""Graphs that are kept; the one not used for longest goes first."""


class Captured:
    """Graphs by what they launch."""

    def __init__(self, device: Any) -> None:
        """None yet."""
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: OrderedDict[Hashable, Any] = OrderedDict()
        self._tried: set[Hashable] = set()
        self.captures = 0

    def replay(
        self, key: Hashable, launch: Callable[[], None], trials: dict[Hashable, Callable[[], None]]
    ) -> Callable[[], None]:
        """What replays ``launch``, captured if need be; ``trials`` run every kernel in it once and change nothing."""
        if key not in self._graphs:
            self._graphs[key] = self._capture(launch, trials)
            if len(self._graphs) > _KEPT:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        replay: Callable[[], None] = self._graphs[key].replay
        return replay

    def _capture(self, launch: Callable[[], None], trials: dict[Hashable, Callable[[], None]]) -> Any:
        self.captures += 1
        current = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            # Kernels are compiled and libraries choose theirs at the first launch of a size, which no graph can hold.
            if new := trials.keys() - self._tried:
                self._stream.wait_stream(current)
                for name in new:
                    trials[name]()
                self._stream.synchronize()
                self._tried |= new
            # Not ``torch.cuda.graph``, which waits for the device, collects garbage and empties the allocator's cache.
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                launch()
            finally:
                graph.capture_end()
        return graph
