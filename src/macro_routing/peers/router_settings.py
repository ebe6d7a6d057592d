"""Router settings; readable without a deep-learning library."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.settings import AllowedRange, CheckedSettings


@dataclass(frozen=True)
class RouterSettings(CheckedSettings):
    """Architecture and training of the routers."""

    hidden: Annotated[int, AllowedRange(1, 65_536)] = 128
    """Width of a router's hidden layer."""
    windows: Annotated[int, AllowedRange(1, 65_536)] = 8
    """Windows that a prompt's states are divided into; shorter prompts have one per token."""
    epochs: Annotated[int, AllowedRange(1)] = 15
    """Training epochs."""
    learning_rate: Annotated[float, AllowedRange(0, exclusive=True)] = 1e-3
    """Initial learning rate of AdamW; it falls to 0 along a cosine."""
    weight_decay: Annotated[float, AllowedRange(0)] = 0.01
    """Weight decay of AdamW."""
    accumulation: Annotated[int, AllowedRange(1)] = 16
    """Prompts per optimizer step."""
    focal_gamma: Annotated[float, AllowedRange(0)] = 2.0
    """Focal loss: how strongly decisions that are already correct are down-weighted; 0 is cross-entropy."""
    effective_beta: Annotated[float, AllowedRange(0, 1)] = 0.999
    """How strongly rare classes are weighted up; 0 not at all, 1 by the inverse of their number."""
