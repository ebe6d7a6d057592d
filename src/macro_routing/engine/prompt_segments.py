"""Prompts as segments: what all of them begin with once, then the rest row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from macro_routing.engine.batches import Tokens, common_beginning, pad_left
from macro_routing.engine.shared_pass import Segment, empty_slots


def prompt_segments(model: Any, prompts: Sequence[Tokens], room: int) -> list[Segment]:
    """One segment, or two where the prompts begin alike; ``room`` tokens will follow them."""
    shared = common_beginning(prompts, _window(model, room))
    ids, mask = pad_left([prompt[shared:] for prompt in prompts], model.device)
    if shared == 0:
        return [Segment(ids, mask)]
    beginning = torch.tensor([prompts[0][:shared]], device=model.device)
    whole = torch.cat([mask.new_ones(len(prompts), shared), mask], dim=1)
    first_row = torch.zeros(len(prompts), dtype=torch.long, device=model.device)
    return [Segment(beginning, torch.ones_like(beginning)), Segment(ids, whole, first_row)]


def _window(model: Any, room: int) -> int | None:
    """Tokens a prompt may have so that no window ever moves over it; None where all layers see everything."""
    windows = [slot.sliding_window for slot in empty_slots(model) if slot.is_sliding]
    return min(windows) - room if windows else None
