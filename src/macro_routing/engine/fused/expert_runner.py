"""The launches of a mixture of experts within a decoding step."""

from typing import Any

import torch
from triton import next_power_of_2

from macro_routing.engine.fused import expert_kernels
from macro_routing.engine.fused.device_tables import DeviceRowAssignment
from macro_routing.engine.fused.weights import Experts, ModelWeights

_PAIRS_BLOCK = 1024
_INNER_BYTES = 128
"""Bytes of a row of weights that one iteration of a product reads."""
_MIN_TILE_ROWS, _MAX_TILE_ROWS, _MAX_WIDE_TILE_ROWS = 16, 64, 128
"""Tensor cores take no fewer rows; in 32 bits, more do not fit into a program's registers."""


class ExpertRunner:
    """Buffers and launches for mixtures of experts, all of the same sizes."""

    def __init__(self, weights: ModelWeights, tables: DeviceRowAssignment, rows: int, options: dict[str, Any]) -> None:
        """Allocate buffers for ``rows`` rows; ``options`` are the dtype and device of states."""
        self._shape, self._gelu, self._tables = weights.shape, weights.form.gelu, tables
        layer = next(layer.mlp for layer in weights.layers if isinstance(layer.mlp, Experts))
        experts, pairs, int32 = len(layer.down), rows * layer.chosen, {**options, "dtype": torch.int32}
        self._router_logits = torch.zeros(rows, experts, **options)
        self._chosen_experts = torch.zeros(pairs, **int32)
        self._chosen_probs = torch.zeros(pairs, **{**options, "dtype": torch.float32})
        self._expert_pairs, self._expert_counts = torch.zeros(experts, rows, **int32), torch.zeros(experts, **int32)
        self._active = torch.zeros(pairs, weights.shape.intermediate, **options)
        self._outputs = torch.zeros(pairs, weights.shape.width, **options)

    def launch(self, experts: Experts, normed: torch.Tensor, delta: torch.Tensor, call: int) -> None:
        """From the normalized states of some rows to the mixture's output."""
        rows, count = len(normed), len(experts.down)
        sequences, width = (self._tables.sequence, self._tables.max_rows), self._shape.width
        logits = experts.router.apply_into(normed, self._router_logits[:rows])
        expert_kernels.choose_experts[(rows,)](
            logits, self._chosen_experts, self._chosen_probs, call, *sequences, count,
            CHOSEN=experts.chosen, BLOCK=next_power_of_2(count),
        )  # fmt: skip
        expert_kernels.group_pairs_by_expert[(count,)](
            self._chosen_experts, self._expert_pairs, self._expert_counts, rows * experts.chosen,
            self._expert_pairs.shape[1], BLOCK=_PAIRS_BLOCK,
        )  # fmt: skip
        self._launch_products(experts, normed)
        expert_kernels.combine_experts[(rows,)](
            self._outputs, self._chosen_probs, delta, call, *sequences, width,
            CHOSEN=experts.chosen, PADDED=next_power_of_2(experts.chosen), NORMALIZED=experts.normalized,
            ROUNDED=experts.rounded, BLOCK=next_power_of_2(width),
        )  # fmt: skip

    def _launch_products(self, experts: Experts, normed: torch.Tensor) -> None:
        shape, count, pairs = self._shape, len(experts.down), len(normed) * experts.chosen
        most = _MAX_TILE_ROWS if normed.dtype == torch.float32 else _MAX_WIDE_TILE_ROWS
        tile_rows = min(most, max(_MIN_TILE_ROWS, next_power_of_2(-(-pairs // count))))
        # With few rows a product waits for its weights: then small blocks, many at a time. With many, it multiplies.
        columns, warps = (128, 8) if tile_rows > _MAX_TILE_ROWS else (64, 4)
        # No more tiles can be: every expert has at most one that is not full, and at most one pair of each row.
        tiles = min(count * -(-len(normed) // tile_rows), count + pairs // tile_rows)
        groups = (self._expert_pairs, self._expert_counts, count, self._expert_pairs.shape[1])
        sizes = {
            "EXPERTS": next_power_of_2(count), "ROWS": tile_rows, "COLUMNS": columns,
            "INNER": _INNER_BYTES // normed.itemsize,
            "PRECISION": "ieee" if normed.dtype == torch.float32 else "tf32", "num_warps": warps, "num_stages": 3,
        }  # fmt: skip
        expert_kernels.expert_gate_up[(tiles, -(-shape.intermediate // columns))](
            normed, experts.gate_up, self._active, *groups, shape.width, shape.intermediate,
            CHOSEN=experts.chosen, GELU=self._gelu, **sizes,
        )  # fmt: skip
        expert_kernels.expert_down[(tiles, -(-shape.width // columns))](
            self._active, experts.down, self._outputs, *groups, shape.width, shape.intermediate, **sizes
        )
