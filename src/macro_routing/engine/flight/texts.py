"""The stages of a text as the kernels read them: end tokens, budgets, and what is dictated between stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from macro_routing.engine.writing import Stage

MOST_STAGES, MOST_TOKENS = 4, 64
"""The tables' fixed size: graphs refer to them."""
_NO_TOKEN = -1


def fits(stages: Sequence[Stage]) -> bool:
    """Whether the device can follow these stages; a bridge between two must not be empty."""
    return (
        len(stages) <= MOST_STAGES
        and all(max(len(stage.ends), len(stage.bridge)) <= MOST_TOKENS for stage in stages)
        and all(stage.bridge for stage in stages[:-1])
    )


class TextTables:
    """Stages on the device."""

    def __init__(self, device: Any) -> None:
        """No stages yet."""
        whole = {"dtype": torch.int32, "device": device}
        self.ends = torch.full((MOST_STAGES + 1, MOST_TOKENS), _NO_TOKEN, **whole)
        self.bridges = torch.zeros(MOST_STAGES + 1, MOST_TOKENS, **whole)
        """Row by row what is dictated when a stage begins; the first is never dictated anything."""
        self.bridge_lengths, self.budgets = torch.zeros(2, MOST_STAGES + 1, **whole)
        self.stages = torch.zeros(1, **whole)

    def fill(self, stages: Sequence[Stage]) -> None:
        """Take over these stages."""
        self.ends.fill_(_NO_TOKEN)
        self.stages.fill_(len(stages))
        for place, stage in enumerate(stages):
            ends = torch.tensor(sorted(stage.ends), dtype=torch.int32)
            bridge = torch.tensor(stage.bridge, dtype=torch.int32)
            self.ends[place, : len(ends)] = ends
            self.budgets[place] = stage.budget
            self.bridges[place + 1, : len(bridge)] = bridge
            self.bridge_lengths[place + 1] = len(bridge)
