"""How well a route still predicts plain text."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from macro_routing.engine.batching import Tokens, compute_position_ids, pad_left
from macro_routing.errors import TaskError
from macro_routing.evaluation.statistics import paired_bootstrap_interval
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.routing import apply_route
from macro_routing.routes.route import Route

WINDOW = 256
"""Tokens that are read together; longer texts are cut."""
_BATCH = 4
_MAX_EXPONENT = 700
"""Whose exponential is still a floating point number."""


def read_plain_text(path: Path) -> str:
    """A text file's contents."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read the text {path}: {error}") from None
    if not text.strip():
        raise TaskError(f"the text {path} is empty; name a file with some plain text")
    return text


def split_windows(frozen: FrozenModel, texts: Sequence[str], max_rows: int) -> list[Tokens]:
    """The texts as rows of at most ``WINDOW`` tokens; rows of one token predict nothing and are left out."""
    windows = [
        tuple(tokens[start : start + WINDOW])
        for tokens in frozen.tokenize_texts(texts)
        for start in range(0, len(tokens), WINDOW)
    ]
    rows = [window for window in windows if len(window) > 1][:max_rows]
    if not rows:
        raise TaskError("the text is of one token, so there is none to predict; name a longer one with --text")
    return rows


@torch.no_grad()
def compute_negative_log_likelihoods(frozen: FrozenModel, route: Route, rows: Sequence[Tokens]) -> list[float]:
    """By row: the sum of −log p over its tokens but the first."""
    model = apply_route(frozen, route)
    values: list[float] = []
    for start in range(0, len(rows), _BATCH):
        part = rows[start : start + _BATCH]
        ids, mask = pad_left(part, frozen.model.device)
        logits = model(ids, attention_mask=mask, position_ids=compute_position_ids(mask), use_cache=False).logits
        log_probabilities = torch.log_softmax(logits[:, :-1].float(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        # A token counts where the one before it is no padding.
        values += torch.where(mask[:, :-1].bool(), -log_probabilities, 0.0).sum(-1).tolist()
    return values


def compare_perplexities(rows: Sequence[Tokens], measured: dict[str, list[float]]) -> dict[str, Any]:
    """Perplexity of both routes, and their ratio with an interval over rows of text.

    Rows on which a route's numbers ran over are left out of both: one of them would make nothing of all others.
    """
    usable = [index for index in range(len(rows)) if all(math.isfinite(values[index]) for values in measured.values())]
    counts = {"windows": len(usable), "left_out": len(rows) - len(usable)}
    if not usable:
        return {**dict.fromkeys(("standard", "route", "ratio", "low", "high")), **counts, "tokens": 0}
    total = sum(len(rows[index]) - 1 for index in usable)
    kept = {name: [values[index] for index in usable] for name, values in measured.items()}
    mean = {name: sum(values) / total for name, values in kept.items()}
    per_token = {name: [value * len(usable) / total for value in values] for name, values in kept.items()}
    low, high = paired_bootstrap_interval(per_token["standard"], per_token["route"])
    return {
        "standard": _safe_exp(mean["standard"]),
        "route": _safe_exp(mean["route"]),
        "ratio": _safe_exp(mean["route"] - mean["standard"]),
        "low": _safe_exp(low),
        "high": _safe_exp(high),
        **counts,
        "tokens": total,
    }


def describe_perplexity(plain: Mapping[str, Any]) -> str:
    """What ``compare_perplexities`` came to, within a sentence."""
    if not plain["windows"]:
        return f"no perplexity (none of {plain['left_out']} rows came to finite numbers)"
    return f"perplexity {plain['standard']:.2f} → {plain['route']:.2f} ({100 * (plain['ratio'] - 1):+.1f} %)"


def note_omitted_perplexity_rows(plain: Mapping[str, Any]) -> list[str]:
    """A note where rows were left out."""
    total = plain["windows"] + plain["left_out"]
    note = f"Of {total} rows {plain['left_out']} are left out: a route came to no finite number on them."
    return [note] if plain["left_out"] else []


def _safe_exp(value: float) -> float:
    return math.inf if value >= _MAX_EXPONENT else math.exp(value)
