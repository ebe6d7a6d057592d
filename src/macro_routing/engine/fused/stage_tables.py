"""The decoding stages on the device: end tokens, token limits, and the forced tokens between stages."""

from collections.abc import Sequence
from typing import Any

import torch

from macro_routing.engine.generation import DecodingStage

MAX_STAGES, MAX_STAGE_TOKENS = 4, 64
"""The tables' fixed size: CUDA graphs refer to them."""
_NO_TOKEN = -1


def supports_stages(stages: Sequence[DecodingStage]) -> bool:
    """Whether the kernels support these stages; there must be forced tokens between two stages."""
    return (
        len(stages) <= MAX_STAGES
        and all(max(len(stage.end_tokens), len(stage.forced_tokens)) <= MAX_STAGE_TOKENS for stage in stages)
        and all(stage.forced_tokens for stage in stages[:-1])
    )


class StageTables:
    """Decoding stages on the device."""

    def __init__(self, device: Any) -> None:
        """Allocate tables without stages."""
        int32 = {"dtype": torch.int32, "device": device}
        self.end_tokens = torch.full((MAX_STAGES + 1, MAX_STAGE_TOKENS), _NO_TOKEN, **int32)
        self.forced_tokens = torch.zeros(MAX_STAGES + 1, MAX_STAGE_TOKENS, **int32)
        """Per stage the tokens that are fed when it starts; the first stage has none."""
        self.forced_lengths, self.max_tokens = torch.zeros(2, MAX_STAGES + 1, **int32)
        self.num_stages = torch.zeros(1, **int32)

    def upload_stages(self, stages: Sequence[DecodingStage]) -> None:
        """Copy stages to the device."""
        self.end_tokens.fill_(_NO_TOKEN)
        self.num_stages.fill_(len(stages))
        for index, stage in enumerate(stages):
            end_tokens = torch.tensor(sorted(stage.end_tokens), dtype=torch.int32)
            forced_tokens = torch.tensor(stage.forced_tokens, dtype=torch.int32)
            self.end_tokens[index, : len(end_tokens)] = end_tokens
            self.max_tokens[index] = stage.max_tokens
            self.forced_tokens[index + 1, : len(forced_tokens)] = forced_tokens
            self.forced_lengths[index + 1] = len(forced_tokens)
