"""Router settings; readable without a deep-learning library."""

from dataclasses import dataclass

from macro_routing.settings import check_integer, check_number


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
        check_integer("hidden", self.hidden, minimum=1, maximum=65_536)
        check_integer("windows", self.windows, minimum=1, maximum=65_536)
        check_integer("epochs", self.epochs, minimum=1)
        check_number("learning_rate", self.learning_rate, minimum=0, exclusive=True)
        check_number("weight_decay", self.weight_decay, minimum=0)
        check_integer("accumulation", self.accumulation, minimum=1)
        check_number("focal_gamma", self.focal_gamma, minimum=0)
        check_number("effective_beta", self.effective_beta, minimum=0, maximum=1)
        for name in ("learning_rate", "weight_decay", "focal_gamma", "effective_beta"):
            object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 are one setting
