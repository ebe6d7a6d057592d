"""CUDA graphs of whole decoding steps, captured on first use and replayed from then on.

Between two graphs the device is idle for as long as a small layer takes, so a step is one graph. Its launches depend on
the order of layers and the numbers of rows alone, so one graph serves every token, and every batch of the same sizes.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch

_MAX_GRAPHS = 64
"""Graphs that are kept; the least recently used one is dropped first."""


class CudaGraphCache:
    """CUDA graphs by the launches that they contain."""

    def __init__(self, device: Any) -> None:
        """Start without graphs."""
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: OrderedDict[Hashable, Any] = OrderedDict()
        self._warmed_up: set[Hashable] = set()
        self.num_captures = 0

    def get_or_capture_graph(
        self, key: Hashable, launch: Callable[[], None], warm_ups: dict[Hashable, Callable[[], None]]
    ) -> Any:
        """The CUDA graph of ``launch``, captured first if needed.

        ``warm_ups`` launch every kernel of it once without changing anything.
        """
        if key not in self._graphs:
            self._graphs[key] = self._capture_graph(launch, warm_ups)
            if len(self._graphs) > _MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def _capture_graph(self, launch: Callable[[], None], warm_ups: dict[Hashable, Callable[[], None]]) -> Any:
        self.num_captures += 1
        current = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            # Kernels are compiled and libraries choose theirs at the first launch of a size, which no graph can hold.
            if new := warm_ups.keys() - self._warmed_up:
                self._stream.wait_stream(current)
                for name in new:
                    warm_ups[name]()
                self._stream.synchronize()
                self._warmed_up |= new
            # Not ``torch.cuda.graph``, which waits for the device, collects garbage and empties the allocator's cache.
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                launch()
            finally:
                graph.capture_end()
        return graph
