"""Block influence: how much each layer changes its input, as 1 - cosine(input, output)."""

from collections.abc import Sequence
from typing import Any

import torch

from macro_routing.models.decoder import get_decoder, remove_hooks_on_exit


@torch.no_grad()
def block_influence(model: Any, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """Block influence of every layer in the standard pass, averaged over the tokens of batches of (ids, mask)."""
    layers = get_decoder(model).layers
    totals, tokens = [0.0] * len(layers), 0
    for ids, mask in batches:
        real = mask.bool()
        tokens += int(real.sum())
        changes: list[float] = []

        def record_change(
            _layer: Any, args: Any, kwargs: Any, output: Any, real: Any = real, into: Any = changes
        ) -> None:
            inputs = args[0] if args else kwargs["hidden_states"]
            outputs = output[0] if isinstance(output, tuple) else output
            cosine = torch.cosine_similarity(
                inputs[real.to(inputs.device)].float(), outputs[real.to(outputs.device)].float()
            )
            into.append(float((1 - cosine).sum()))

        with remove_hooks_on_exit(layer.register_forward_hook(record_change, with_kwargs=True) for layer in layers):
            model(ids, attention_mask=mask, use_cache=False, logits_to_keep=1)
        totals = [total + change for total, change in zip(totals, changes, strict=True)]
    return [total / tokens for total in totals]
