"""The router networks of Dr.LLM: what a router sees of a prompt, and how it decides.

A router sees the hidden states of a prompt as the means of a few windows. Its decision is one of several classes.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn


def pool_windows(states: Sequence[torch.Tensor], windows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean states ``[prompts, windows, width]`` of the windows of several prompts, and ``[prompts, windows]`` weights.

    ``states`` are ``[tokens, width]`` each. A prompt has ``min(windows, tokens)`` windows that differ by at most one
    token, longer ones first; means are in float32. The padding windows of short prompts have weight 0. All windows are
    summed in one call: thousands of prompts at dozens of layers would be millions of small sums.
    """
    tokens = np.array([len(state) for state in states])[:, None]
    count = np.minimum(windows, tokens)
    index = np.arange(windows)
    sizes = np.where(index < count, tokens // count + (index < tokens % count), 0)
    device = states[0].device
    lengths = torch.from_numpy(sizes.ravel()).to(device)
    # Lengths are not checked: that would synchronize with the device.
    sums = torch.segment_reduce(torch.cat(list(states)).float(), "sum", lengths=lengths, axis=0, unsafe=True)
    pooled = sums / lengths.clamp(min=1)[:, None]
    weights = torch.from_numpy(np.where(index < count, 1 / count, 0.0)).float()
    return pooled.reshape(len(states), windows, -1), weights.to(device)


class StackedRouters(nn.Module):
    """Several routers of one shape, with stacked weights so that all of them can be trained in one pass.

    Each is Linear → GELU (tanh form) → Linear on every window, and the weighted mean of the windows' logits. They
    compute in float32 whatever the model does: they are tiny, and their decisions are discrete.
    """

    def __init__(
        self, count: int, width: int, classes: int, hidden: int, generator: torch.Generator | None = None
    ) -> None:
        """Create ``count`` routers with torch's default initialization of linear layers."""
        super().__init__()

        def draw_parameter(*shape: int, inputs: int) -> nn.Parameter:
            bound = 1 / math.sqrt(inputs)
            return nn.Parameter(torch.empty(*shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator))

        self.inner = draw_parameter(count, width, hidden, inputs=width)
        self.inner_bias = draw_parameter(count, hidden, inputs=width)
        self.outer = draw_parameter(count, hidden, classes, inputs=hidden)
        self.outer_bias = draw_parameter(count, classes, inputs=hidden)

    @property
    def count(self) -> int:
        """Number of routers."""
        return len(self.inner)

    def forward(self, pooled: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Logits ``[prompts, routers, classes]`` of ``[prompts, routers, windows, width]``, each router its own."""
        return self._compute_logits(pooled, weights, slice(None))

    def forward_single(self, number: int, pooled: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Logits ``[prompts, classes]`` of one router for ``[prompts, windows, width]``."""
        return self._compute_logits(pooled[:, None], weights, slice(number, number + 1))[:, 0]

    def _compute_logits(self, pooled: torch.Tensor, weights: torch.Tensor, routers: slice) -> torch.Tensor:
        inner = torch.einsum("prwd,rdh->prwh", pooled, self.inner[routers]) + self.inner_bias[routers, None]
        active = nn.functional.gelu(inner, approximate="tanh")
        outer = torch.einsum("prwh,rhc->prwc", active, self.outer[routers]) + self.outer_bias[routers, None]
        return (outer * weights[:, None, :, None]).sum(dim=2)


def compute_router_logits(
    routers: StackedRouters, number: int, states: Sequence[torch.Tensor], windows: int
) -> torch.Tensor:
    """Logits ``[prompts, classes]`` of router ``number`` for states on any device."""
    pooled, weights = pool_windows(states, windows)
    device = routers.inner.device
    return routers.forward_single(number, pooled.to(device), weights.to(device))
