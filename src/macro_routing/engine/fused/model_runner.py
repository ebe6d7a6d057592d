"""One decoding step on the device: all layer calls for the assigned rows, then the choice of the next tokens.

A step is replayed from a CUDA graph; without graphs the same kernels are launched one by one.
"""

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from triton import next_power_of_2
from triton.runtime import driver

from macro_routing.engine.fused import attention_kernels, kernels
from macro_routing.engine.fused.device_tables import (
    DeviceRowAssignment,
    LayerCallLaunchSize,
    ReasoningAndAnswerStageTables,
    RunningSequenceRows,
)
from macro_routing.engine.fused.expert_runner import ExpertRunner
from macro_routing.engine.fused.weights import MLP, Experts, LayerWeights, ModelWeights
from macro_routing.models.mixing import PLAUSIBILITY

_LOGIT_ROWS = 512
"""Rows whose logits are in memory at once."""
_VOCABULARY_BLOCK = 8192
_MLP_BLOCK = 1024
_ATTENTION_BLOCK, _ATTENTION_BLOCK_BYTES = 64, 64 * 512
"""Cached tokens per iteration of the attention's loop, and bytes of their keys; large ones do not fit on the chip."""
_ATTENTION_MEMORY = 96 << 10
"""Shared memory of a program that blocks of this size need; devices with less (Turing has 64 KiB) take half of it."""
_MIN_GROUP = 16
"""The smallest number of query heads that the tensor cores take."""
_TARGET_PROGRAMS, _MAX_SPLITS = 264, 8
"""Attention is split while fewer programs than this would run, into at most so many parts: parts take time, too."""
_MAX_SPLIT_ROWS = 2 * _TARGET_PROGRAMS
_MAX_GRAPHS = 64
"""Graphs that are kept; the least recently used one is dropped first."""


RotaryTable = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines by position."""


@dataclass(frozen=True)
class BufferSizes:
    """Sizes of a model runner's buffers."""

    rows: int
    """Sequences."""
    calls: int
    """Layer calls of a step."""
    cached_tokens: int
    """Over all sequences and steps."""
    kept_states: int
    """States that a sequence keeps for its adds."""
    text_tokens: int
    """Tokens of a text, its prompt included."""

    def is_large_enough_for(self, other: "BufferSizes") -> bool:
        """Whether these sizes are enough for ``other``."""
        return all(size >= needed for size, needed in zip(astuple(self), astuple(other), strict=True))

    def enlarge_to_cover(self, other: "BufferSizes", max_cached_tokens: int) -> "BufferSizes":
        """Sizes that cover both, with spare room: new buffers lose their CUDA graphs."""
        rows, calls, tokens, kept, text = map(max, astuple(self), astuple(other))
        spare = max(tokens, min(tokens * 5 // 4, max_cached_tokens))
        return BufferSizes(_round_up(rows, 256), _round_up(calls, 128), spare, _round_up(kept, 8), _round_up(text, 256))


class CudaGraphCache:
    """CUDA graphs of whole decoding steps by the launches that they contain, captured on first use.

    Between two graphs the device is idle for as long as a small layer takes, so a step is one graph. Its launches
    depend on the order of layers and the numbers of rows alone, so one graph serves every token, and every batch of the
    same sizes.
    """

    def __init__(self, device: Any) -> None:
        """Start without graphs."""
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: OrderedDict[Hashable, torch.cuda.CUDAGraph] = OrderedDict()
        self._warmed_up: set[Hashable] = set()
        self.num_captures = 0

    def get_or_capture_graph(
        self, key: Hashable, launch: Callable[[], None], warm_ups: dict[Hashable, Callable[[], None]]
    ) -> torch.cuda.CUDAGraph:
        """The CUDA graph of ``launch``, captured first if needed.

        ``warm_ups`` launch every kernel of it once without changing anything.
        """
        if key not in self._graphs:
            self._graphs[key] = self._capture_graph(launch, warm_ups)
            if len(self._graphs) > _MAX_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def _capture_graph(
        self, launch: Callable[[], None], warm_ups: dict[Hashable, Callable[[], None]]
    ) -> torch.cuda.CUDAGraph:
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


class ModelRunner:
    """Weights, cache and sequence states at fixed addresses, and the kernel launches of a decoding step."""

    def __init__(
        self, weights: ModelWeights, rotary: Sequence[RotaryTable], sizes: BufferSizes, *, graphs: bool
    ) -> None:
        """Allocate all buffers of a step; ``rotary`` has the table of every layer."""
        self.weights, self.sizes, self._rotary = weights, sizes, rotary
        device = weights.embeddings.device
        self._shared_memory = get_shared_memory(device)
        self._allocate_sequence_state(sizes, {"dtype": weights.embeddings.dtype, "device": device})
        self._allocate_scratch_buffers(sizes.rows, {"dtype": weights.embeddings.dtype, "device": device})
        self.stage_tables = ReasoningAndAnswerStageTables(device)
        self.graphs = CudaGraphCache(device) if graphs else None

    def _allocate_sequence_state(self, sizes: BufferSizes, options: dict[str, Any]) -> None:
        shape, int32 = self.weights.shape, {"dtype": torch.int32, "device": options["device"]}
        self.tables = DeviceRowAssignment(sizes.calls, sizes.rows, options["device"])
        self.keys = torch.empty(shape.kv_heads, sizes.cached_tokens, shape.head_size, **options)
        self.values = torch.empty_like(self.keys)
        self.states = torch.zeros(sizes.rows, shape.width, **options)
        kept_states = max(1, sizes.kept_states)
        self._kept_states = torch.zeros(sizes.rows, kept_states, shape.width, **options)
        self._kernel_sizes = (sizes.rows, kept_states, shape.width)
        self._width_block = next_power_of_2(shape.width)
        sequence_numbers = torch.zeros(6, sizes.rows, **int32)
        self.position, self.start, self._done, self._stage, self._stage_tokens, self._forced_index = sequence_numbers
        self._step, self._warm_up_step = torch.zeros(2, 1, **int32)
        self.token_log = torch.zeros(sizes.text_tokens + 1, sizes.rows, **int32)

    def _allocate_scratch_buffers(self, rows: int, options: dict[str, Any]) -> None:
        shape, float32 = self.weights.shape, {"dtype": torch.float32, "device": options["device"]}
        self._normed, self._delta = torch.zeros(2, rows, shape.width, **options)
        self._qkv = torch.zeros(rows, (shape.heads + 2 * shape.kv_heads) * shape.head_size, **options)
        self._attended = torch.zeros(rows, shape.heads * shape.head_size, **options)
        if any(isinstance(layer.mlp, Experts) for layer in self.weights.layers):
            self._experts = ExpertRunner(self.weights, self.tables, rows, options)
        else:
            self._gate_up = torch.zeros(rows, 2 * shape.intermediate, **options)
            self._active = torch.zeros(rows, shape.intermediate, **options)
        group = max(_MIN_GROUP, next_power_of_2(shape.heads // shape.kv_heads))
        self._split_outputs = torch.zeros(_MAX_SPLIT_ROWS, group, next_power_of_2(shape.head_size), **float32)
        self._split_stats = torch.zeros(_MAX_SPLIT_ROWS, 2, group, **float32)
        self._split_counters = torch.zeros(_MAX_SPLIT_ROWS, dtype=torch.int32, device=options["device"])
        self._logits = torch.empty(min(rows, _LOGIT_ROWS), shape.vocabulary, **options)
        self._blocks = -(-shape.vocabulary // _VOCABULARY_BLOCK)
        self._best_value = torch.zeros(rows, self._blocks, **float32)
        self._best_token = torch.zeros(rows, self._blocks, dtype=torch.int32, device=options["device"])
        self._member_best_value, self._member_best_token = map(torch.empty_like, (self._best_value, self._best_token))

    # --- running ---------------------------------------------------------------------------------------------------

    def get_or_capture_token_step(self, assignment: RunningSequenceRows) -> Callable[[], None]:
        """The function that runs one token of this assignment; a missing CUDA graph is captured."""
        rows, members = assignment.padded_rows, assignment.members
        launch = functools.partial(self._launch_decoding_step, assignment.calls, rows, members)
        if self.graphs is None:
            return launch
        warm_ups: dict[Hashable, Callable[[], None]] = {
            call.rows: functools.partial(self._warm_up_layer, call.rows) for call in assignment.calls
        }
        warm_ups[None, rows, members] = functools.partial(self._launch_token_prediction, rows, members, warm_up=True)
        return self.graphs.get_or_capture_graph((assignment.calls, rows, members), launch, warm_ups).replay

    def reset_sequences(self) -> None:
        """Start all sequences at the first token of their first stage."""
        for numbers in (self._done, self._stage, self._stage_tokens):
            numbers.zero_()
        self._forced_index.fill_(-1)

    def feed_first_tokens(self, tokens: torch.Tensor, rows: int) -> None:
        """Feed the tokens that the prefill predicted to all sequences, which are all live."""
        self._best_value.fill_(float("-inf"))
        self._best_value[:, 0] = 0
        self._best_token[: len(tokens), 0] = tokens[self.tables.live_sequences[: len(tokens)].long()]
        self._step.zero_()
        self._launch_update_sequences(rows, members=1)

    # --- launches --------------------------------------------------------------------------------------------------

    def _launch_decoding_step(self, calls: Sequence[LayerCallLaunchSize], rows: int, members: int) -> None:
        normed = False
        for number, call in enumerate(calls):
            layer = self.weights.layers[call.layer]
            if not normed:
                self._launch_pre_attn_norm(layer, number, call.rows)
            self._launch_layer(call.layer, number, call.rows)
            normed = call.same_rows_next
            if normed:
                next_layer = self.weights.layers[calls[number + 1].layer]
                self._launch_residual_pre_attn_norm(layer, next_layer, number, call.rows)
            else:
                self._launch_residual_store(layer, number, call.rows)
        self._launch_token_prediction(rows, members)

    def _warm_up_layer(self, rows: int) -> None:
        """Launch all kernels of a layer for ``rows`` rows, at a layer call without sequences."""
        layer, call = self.weights.layers[0], self.tables.max_calls
        self._launch_pre_attn_norm(layer, call, rows)
        self._launch_layer(0, call, rows)
        self._launch_residual_pre_attn_norm(layer, layer, call, rows)
        self._launch_residual_store(layer, call, rows)

    def _launch_pre_attn_norm(self, layer: LayerWeights, call: int, rows: int) -> None:
        norm, flags = self._norm(layer.pre_attn_norm)
        kernels.pre_attn_norm[(rows,)](
            self.states, self._kept_states, self._normed, norm, call, self.tables.sequence,
            self.tables.add_slot, self.tables.coefficient, *self._kernel_sizes, self.weights.shape.epsilon, **flags,
        )  # fmt: skip

    def _launch_layer(self, number: int, call: int, rows: int) -> None:
        """From the normalized states to the MLP's output."""
        layer, shape, tables = self.weights.layers[number], self.weights.shape, self.tables
        normed, delta = self._normed[:rows], self._delta[:rows]
        self._launch_attention(number, layer.qkv.apply_into(normed, self._qkv[:rows]), call, rows)
        layer.attention_out.apply_into(self._attended[:rows], delta)
        output_norm, norm, flags = self._output_and_next_norm(layer.attn_output_norm, layer.pre_mlp_norm)
        kernels.post_attn_norm[(rows,)](
            self.states, delta, normed, output_norm, norm, call, tables.sequence, tables.max_rows, shape.width,
            shape.epsilon, **flags,
        )  # fmt: skip
        if isinstance(layer.mlp, Experts):
            self._experts.launch(layer.mlp, normed, delta, call)
        else:
            self._launch_mlp(layer.mlp, normed, delta)

    def _launch_mlp(self, mlp: MLP, normed: torch.Tensor, delta: torch.Tensor) -> None:
        rows, intermediate = len(normed), self.weights.shape.intermediate
        gate_up, active = mlp.gate_up.apply_into(normed, self._gate_up[:rows]), self._active[:rows]
        kernels.activate_and_mul[(rows, -(-intermediate // _MLP_BLOCK))](
            gate_up, active, intermediate, GELU=self.weights.form.gelu, BLOCK=_MLP_BLOCK
        )
        mlp.down.apply_into(active, delta)

    def _launch_residual_store(self, layer: LayerWeights, call: int, rows: int) -> None:
        output_norm, _, flags = self._output_and_next_norm(layer.mlp_output_norm, None)
        del flags["NORM"]
        kernels.residual_store[(rows,)](
            self.states, self._kept_states, self._delta, output_norm, call, self.tables.sequence,
            self.tables.keep_slot, *self._kernel_sizes, self.weights.shape.epsilon, **flags,
        )  # fmt: skip

    def _launch_residual_pre_attn_norm(
        self, layer: LayerWeights, next_layer: LayerWeights, call: int, rows: int
    ) -> None:
        output_norm, norm, flags = self._output_and_next_norm(layer.mlp_output_norm, next_layer.pre_attn_norm)
        kernels.residual_pre_attn_norm[(rows,)](
            self.states, self._kept_states, self._delta, self._normed, output_norm, norm, call,
            self.tables.sequence, self.tables.keep_slot, self.tables.add_slot, self.tables.coefficient,
            *self._kernel_sizes, self.weights.shape.epsilon, **flags,
        )  # fmt: skip

    def _norm(self, weight: torch.Tensor | None) -> tuple[torch.Tensor, dict[str, Any]]:
        """The weight of a norm, or any tensor where there is none, and the flags of its kernel."""
        flags = {
            "NORM": weight is not None,
            "ROUND_FIRST": self.weights.form.round_before_weight,
            "BLOCK": self._width_block,
        }
        return self.states if weight is None else weight, flags

    def _output_and_next_norm(
        self, output: torch.Tensor | None, following: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        """The same for the norm of a block's output and the next block's norm."""
        norm, flags = self._norm(following)
        return self.states if output is None else output, norm, {**flags, "OUTPUT_NORM": output is not None}

    def _launch_attention(self, number: int, qkv: torch.Tensor, call: int, rows: int) -> None:
        layer, shape, form, tables = self.weights.layers[number], self.weights.shape, self.weights.form, self.tables
        group = shape.heads // shape.kv_heads
        # The number of programs that share the attention of one row and KV head.
        splits = min(_MAX_SPLITS, max(1, _TARGET_PROGRAMS // (rows * shape.kv_heads)))
        norms = (layer.query_norm, layer.key_norm)
        if form.norm_whole_projection:
            query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
            kernels.norm_query_and_key[(rows, 2)](
                qkv, *norms, call, tables.sequence, tables.max_rows, shape.epsilon, QUERY=query, KEY=key,
                ROUND_FIRST=form.round_before_weight, BLOCK=next_power_of_2(query),
            )  # fmt: skip
            norms = (None, None)
        head_block = next_power_of_2(shape.head_size)
        block = choose_attention_block(head_block * self.states.itemsize, self._shared_memory)
        attention_kernels.attention_decode[(rows, shape.kv_heads, splits)](
            qkv, self._attended, self._split_outputs, self._split_stats, self._split_counters,
            self.keys, self.values, *self._rotary[number],
            *(self.states if norm is None else norm for norm in norms),
            call, tables.sequence, tables.cache_start, self.position, self.start, self._done, tables.max_rows,
            self.keys.shape[1], layer.window, shape.scale, form.score_cap, shape.epsilon,
            HEADS=shape.heads, KV_HEADS=shape.kv_heads, GROUP=group, PADDED=max(_MIN_GROUP, next_power_of_2(group)),
            HALF=shape.head_size // 2, HALF_BLOCK=head_block // 2, BLOCK=block, SPLITS=splits,
            NORMED=norms[0] is not None, ROUND_FIRST=form.round_before_weight, CAPPED=form.score_cap > 0,
            PRECISION="ieee" if self.states.dtype == torch.float32 else "tf32", num_warps=4, num_stages=2,
        )  # fmt: skip

    def _launch_token_prediction(self, rows: int, members: int, *, warm_up: bool = False) -> None:
        """Final norm, logits and argmax, then the next input token of every sequence."""
        shape, form = self.weights.shape, self.weights.form
        live, step = (
            (self.tables.no_sequences, self._warm_up_step) if warm_up else (self.tables.live_sequences, self._step)
        )
        best_value, best_token = (
            (self._member_best_value, self._member_best_token) if members else (self._best_value, self._best_token)
        )
        # The logits of a mixture's members are in memory together.
        size = _LOGIT_ROWS - _LOGIT_ROWS % max(1, members)
        for first in range(0, rows, size):
            chunk = min(size, rows - first)
            normed = self._normed[:chunk]
            kernels.final_norm[(chunk,)](
                self.states, normed, self.weights.norm, live, first, shape.width, shape.epsilon,
                ROUND_FIRST=form.round_before_weight, BLOCK=self._width_block,
            )  # fmt: skip
            logits = self.weights.head.apply_into(normed, self._logits[:chunk])
            kernels.block_argmax[(chunk, self._blocks)](
                logits, best_value, best_token, step, first, shape.vocabulary, self._blocks, form.logit_cap,
                CAPPED=form.logit_cap > 0, BLOCK=_VOCABULARY_BLOCK,
            )  # fmt: skip
            if members:
                self._launch_mixture_argmax(logits, live, first, members)
        self._launch_update_sequences(rows, max(1, members), warm_up=warm_up)

    def _launch_mixture_argmax(self, logits: torch.Tensor, live: torch.Tensor, first: int, members: int) -> None:
        shape, cap = self.weights.shape, self.weights.form.logit_cap
        kernels.mixture_argmax[(-(-len(logits) // members), self._blocks)](
            logits, self._member_best_value, self._best_value, self._best_token, live, self.tables.weight,
            self.tables.reference, first, shape.vocabulary, self._blocks, math.log(PLAUSIBILITY), cap,
            CAPPED=cap > 0, MEMBERS=members, BLOCKS=next_power_of_2(self._blocks), BLOCK=_VOCABULARY_BLOCK,
        )  # fmt: skip

    def _launch_update_sequences(self, rows: int, members: int, *, warm_up: bool = False) -> None:
        shape, stages = self.weights.shape, self.stage_tables
        live = self.tables.no_sequences if warm_up else self.tables.live_sequences
        kernels.update_sequences[(rows,)](
            self._best_value, self._best_token, live, self.states, self.weights.embeddings, self.token_log,
            self._step, self.position, self._done, self._stage, self._stage_tokens, self._forced_index,
            stages.end_tokens, stages.max_tokens, stages.forced_tokens, stages.forced_lengths, stages.num_stages,
            stages.end_tokens.shape[1], stages.forced_tokens.shape[1], self.tables.max_rows, shape.width, self._blocks,
            self.weights.form.embedding_scale, MEMBERS=members, ENDS=next_power_of_2(stages.end_tokens.shape[1]),
            BLOCKS=next_power_of_2(self._blocks), BLOCK=self._width_block,
        )  # fmt: skip


def get_shared_memory(device: torch.device) -> int | None:
    """Bytes of shared memory that a program may take; None where kernels are interpreted."""
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    properties: dict[str, int] = driver.active.utils.get_device_properties(index)
    return properties["max_shared_mem"]


def choose_attention_block(key_bytes: int, shared_memory: int | None) -> int:
    """Cached tokens per iteration of the attention's loop, by the bytes of a key of one head."""
    is_small = shared_memory is not None and shared_memory < _ATTENTION_MEMORY
    return min(_ATTENTION_BLOCK, _ATTENTION_BLOCK_BYTES // (2 if is_small else 1) // key_bytes)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
