"""Layer calls replayed from CUDA graphs: the kernels of a small batch take longer to start than to run.

A layer that many routes apply to the same rows is captured once for each batch. Its inputs and outputs are in buffers
at fixed addresses, which all layers share.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.hidden_states import get_cache_layer_templates

MAX_REPLAYED_TOKENS = 8_192
"""Tokens of a batch up to which layers are replayed; with more of them kernels run longer than they take to start."""
MIN_REPLAYED_CALLS = 3
"""A layer that is called fewer times is not captured, which takes about as long as a call."""
CAPTURED_ATTENTIONS = ("sdpa", "eager")
Tensors = list[torch.Tensor]
Run = Callable[[Tensors], Tensors]
Launch = Callable[[], None]


def can_replay_layers(model: Any) -> bool:
    """Whether the layers of a model can be captured: on one GPU, not quantized, without experts, hooks or windows.

    A cache with a sliding window copies its size from the host, and FlashAttention asks the device for the lengths of
    texts; neither can be captured.
    """
    layers = get_decoder(model).layers
    return (
        model.device.type == "cuda"
        and len({parameter.device for parameter in model.parameters()}) == 1
        and not any(hasattr(module, "_hf_hook") or hasattr(module, "experts") for module in layers.modules())
        and getattr(model.config, "quantization_config", None) is None
        and model.config._attn_implementation in CAPTURED_ATTENTIONS  # noqa: SLF001
        and not any(layer.is_sliding for layer in get_cache_layer_templates(model))
    )


class LayerGraphs:
    """The captured layers of one batch."""

    def __init__(self, capture: Callable[[Launch, bool], Launch] | None = None) -> None:
        """Start without graphs; ``capture`` makes a replay of a launch, which is the first of its sizes or not."""
        self._capture = capture or capture_cuda_graph
        self._replays: dict[int, Launch] = {}
        self._inputs: Tensors = []
        self._outputs: Tensors = []

    def run(self, layer: int, states: Tensors, run: Run) -> Tensors:
        """What ``run`` makes of the states of all segments; captured when ``layer`` is called for the first time."""
        if not self._inputs:
            self._inputs, self._outputs = ([torch.empty_like(state) for state in states] for _ in range(2))
        for target, state in zip(self._inputs, states, strict=True):
            target.copy_(state)
        if layer not in self._replays:
            launch = functools.partial(self._run_into_outputs, run)
            self._replays[layer] = self._capture(launch, not self._replays)
        self._replays[layer]()
        return [output.clone() for output in self._outputs]

    def _run_into_outputs(self, run: Run) -> None:
        for target, output in zip(self._outputs, run(self._inputs), strict=True):
            target.copy_(output)


@functools.cache
def _get_stream_and_pool(device: int) -> tuple[Any, Any, Any]:
    """A stream to capture on, a pool of memory for all graphs of a device, and a graph that keeps the pool."""
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    pool = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        torch.zeros(1, device=f"cuda:{device}")
        graph.capture_end()
    return stream, pool, graph


def capture_cuda_graph(launch: Launch, is_first: bool) -> Launch:
    """Capture; before the first capture launch once, since libraries choose kernels at the first launch of a size."""
    current = torch.cuda.current_stream()
    stream, pool, _ = _get_stream_and_pool(torch.cuda.current_device())
    stream.wait_stream(current)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        if is_first:
            launch()
        # Not ``torch.cuda.graph``, which waits for the device, collects garbage and empties the allocator's cache.
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            launch()
        finally:
            graph.capture_end()
    current.wait_stream(stream)
    return graph.replay
