"""Prompts as segments: the common prefix of all prompts once, then the rest of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from macro_routing.engine.batching import Tokens, common_prefix_length, pad_left
from macro_routing.engine.shared_forward import Segment, empty_cache_layers


def make_prompt_segments(model: Any, prompts: Sequence[Tokens], new_tokens: int) -> list[Segment]:
    """One segment, or two where the prompts share a prefix; at most ``new_tokens`` tokens will follow each prompt."""
    shared = common_prefix_length(prompts, _max_prompt_within_window(model, new_tokens))
    ids, mask = pad_left([prompt[shared:] for prompt in prompts], model.device)
    if shared == 0:
        return [Segment(ids, mask)]
    prefix = torch.tensor([prompts[0][:shared]], device=model.device)
    full_mask = torch.cat([mask.new_ones(len(prompts), shared), mask], dim=1)
    parents = torch.zeros(len(prompts), dtype=torch.long, device=model.device)
    return [Segment(prefix, torch.ones_like(prefix)), Segment(ids, full_mask, parents)]


def _max_prompt_within_window(model: Any, new_tokens: int) -> int | None:
    """The longest prompt that no sliding window ever moves over; None where no layer has a window."""
    windows = [layer.sliding_window for layer in empty_cache_layers(model) if layer.is_sliding]
    return min(windows) - new_tokens if windows else None
