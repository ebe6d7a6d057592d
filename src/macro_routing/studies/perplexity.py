"""How well a route still predicts plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from macro_routing.engine.batches import Tokens, pad_left, positions_of
from macro_routing.errors import TaskError
from macro_routing.evaluation.statistics import paired_bootstrap
from macro_routing.models.frozen import FrozenModel
from macro_routing.routes.route import Route

WINDOW = 256
"""Tokens that are read together; longer texts are cut."""
_BATCH = 4


def text_of(path: Path) -> str:
    """A text file's contents."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read the text {path}: {error}") from None
    if not text.strip():
        raise TaskError(f"the text {path} is empty; name a file with some plain text")
    return text


def windows(frozen: FrozenModel, texts: Sequence[str], most: int) -> list[Tokens]:
    """The texts as rows of at most ``WINDOW`` tokens; rows of one token predict nothing and are left out."""
    found: list[Tokens] = []
    for tokens in frozen.tokens_of(texts):
        found += [tuple(tokens[start : start + WINDOW]) for start in range(0, len(tokens), WINDOW)]
    rows = [row for row in found if len(row) > 1][:most]
    if not rows:
        raise TaskError("the text is of one token, so there is none to predict; name a longer one with --text")
    return rows


@torch.no_grad()
def surprise(frozen: FrozenModel, route: Route, rows: Sequence[Tokens]) -> list[float]:
    """By row: the sum of −log p over its tokens but the first."""
    model = frozen.routed(route)
    found: list[float] = []
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        ids, mask = pad_left(part, frozen.model.device)
        logits = model(ids, attention_mask=mask, position_ids=positions_of(mask), use_cache=False).logits
        told = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        # A token counts where the one before it is no padding.
        found += (-told * mask[:, :-1]).sum(-1).tolist()
    return found


def perplexities(rows: Sequence[Tokens], found: dict[str, list[float]]) -> dict[str, Any]:
    """Perplexity of both routes, and their ratio with an interval over rows of text."""
    sizes = [len(row) - 1 for row in rows]
    total = sum(sizes)
    mean = {name: sum(values) / total for name, values in found.items()}
    per_token = {name: [value * len(rows) / total for value in values] for name, values in found.items()}
    low, high = paired_bootstrap(per_token["standard"], per_token["route"])
    return {
        "standard": _exp(mean["standard"]),
        "route": _exp(mean["route"]),
        "ratio": _exp(mean["route"] - mean["standard"]),
        "low": _exp(low),
        "high": _exp(high),
        "windows": len(rows),
        "tokens": total,
    }


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
