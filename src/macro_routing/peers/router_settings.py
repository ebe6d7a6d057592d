"""Router settings; readable without a deep-learning library."""

from dataclasses import dataclass

from macro_routing.settings import Range, check_fields


@dataclass(frozen=True)
class RouterSettings:
    """Architecture and training of the routers."""

    hidden: int = 128
    """Width of a router's hidden layer."""
    windows: int = 8
    """Windows that a prompt's states are divided into; shorter prompts have one per token."""
    epochs: int = 15
    """Training epochs."""
    learning_rate: float = 1e-3
    """Initial learning rate of AdamW; it falls to 0 along a cosine."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    accumulation: int = 16
    """Prompts per optimizer step."""
    focal_gamma: float = 2.0
    """Focal loss: how strongly decisions that are already correct are down-weighted; 0 is cross-entropy."""
    effective_beta: float = 0.999
    """How strongly rare classes are weighted up; 0 not at all, 1 by the inverse of their number."""

    def __post_init__(self) -> None:
        """Reject impossible settings by name."""
        check_fields(
            self,
            hidden=Range(1, 65_536),
            windows=Range(1, 65_536),
            epochs=Range(1),
            learning_rate=Range(0, exclusive=True),
            weight_decay=Range(0),
            accumulation=Range(1),
            focal_gamma=Range(0),
            effective_beta=Range(0, 1),
        )
