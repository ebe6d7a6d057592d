"""A batch of prompts on its way through the model: single layers can be applied to any of its rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from macro_routing.engine.batching import Tokens, batch_by_length, compute_position_ids, pad_left
from macro_routing.errors import ModelError
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.hidden_states import compute_layer_keyword_arguments

_BATCH_TOKENS = {"cpu": 8_192, "cuda": 16_384}
"""Tokens, padding included, that run through the model together by default."""
_MAX_CACHED_ROW_SETS = 4
"""Sets of rows whose masks are kept: at one layer some rows are executed and fewer repeated, and the next is alike."""


def check_prompts_not_empty(prompts: Sequence[Tokens]) -> None:
    """Reject prompts without tokens: a router would have no state to see."""
    for number, prompt in enumerate(prompts, 1):
        if not prompt:
            raise ModelError(f"prompt {number} has no tokens, so a router has nothing to decide by")


class PaddedPromptBatch:
    """A padded batch of prompts and the layers that run on its rows; without a key-value cache."""

    def __init__(self, model: Any, prompts: Sequence[Tokens]) -> None:
        """Pad and embed the prompts."""
        self._model = model
        self._lengths = [len(prompt) for prompt in prompts]
        self._ids, self._mask = pad_left(prompts, model.device)
        inputs = compute_layer_keyword_arguments(
            model, self._ids, self._mask, compute_position_ids(self._mask), cached=0
        )
        self.embedded = inputs.embedded
        """``[prompts, longest, width]``, padding first."""
        self._arguments = {tuple(range(len(prompts))): inputs.arguments}

    @torch.no_grad()
    def apply_layer(self, layer: int, rows: Sequence[int], state: torch.Tensor) -> torch.Tensor:
        """``state`` after ``layer`` was applied to ``rows``; the other rows stay unchanged."""
        if not rows:
            return state
        is_full = len(rows) == len(state)
        hidden = state if is_full else state[list(rows)]
        output = get_decoder(self._model).layers[layer](hidden, **self._get_layer_arguments(tuple(rows))[layer])
        output = output[0] if isinstance(output, tuple) else output
        return output if is_full else copy_with_replaced_rows(state, rows, output)

    def remove_padding(self, state: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """The state ``[tokens, width]`` of each of ``rows``."""
        return [state[row, -self._lengths[row] :] for row in rows]

    def _get_layer_arguments(self, rows: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
        """Layer arguments for these rows only; the model computes them, since only it knows what depends on a row."""
        if rows not in self._arguments:
            if len(self._arguments) == _MAX_CACHED_ROW_SETS:
                self._arguments.pop(next(iter(self._arguments)))
            ids, mask = self._ids[list(rows)], self._mask[list(rows)]
            inputs = compute_layer_keyword_arguments(self._model, ids, mask, compute_position_ids(mask), cached=0)
            self._arguments[rows] = inputs.arguments
        return self._arguments[rows]


def copy_with_replaced_rows(state: torch.Tensor, rows: Sequence[int], values: torch.Tensor) -> torch.Tensor:
    """A copy of ``state`` with other values in ``rows``."""
    changed = state.clone()
    changed[list(rows)] = values.to(state.device)
    return changed


def batch_prompts(
    model: Any, prompts: Sequence[Tokens], max_batch_tokens: int | None
) -> Iterator[tuple[list[int], PaddedPromptBatch]]:
    """Batches of prompts of similar lengths, with the prompts' indices; None: tokens that suit the device."""
    check_prompts_not_empty(prompts)
    limit = max_batch_tokens or _BATCH_TOKENS.get(model.device.type, _BATCH_TOKENS["cpu"])
    for indices in batch_by_length([len(prompt) for prompt in prompts], limit):
        yield indices, PaddedPromptBatch(model, [prompts[index] for index in indices])
