"""Looking inside a pass: the hidden state after every step, and the model's own reading of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from macro_routing.errors import ModelError
from macro_routing.models.decoder import get_decoder
from macro_routing.models.routing import shallow_copy


def collect_hidden_states(model: Any, input_ids: torch.Tensor, **inputs: Any) -> list[torch.Tensor]:
    """The hidden state after each executed step, before the final norm; the model may be routed or not.

    There are as many as the route has steps: the embeddings are not among them.
    """
    if not isinstance(input_ids, torch.Tensor):
        raise ModelError(f"hidden_states takes a tensor of token ids, not {type(input_ids).__name__}")
    states: list[torch.Tensor] = []

    def keep(_module: Any, _args: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    with _forward_hooks(get_decoder(model).layers, keep), torch.no_grad():
        model(input_ids, use_cache=False, **inputs)
    return states


@contextmanager
def _forward_hooks(layers: Any, hook: Any) -> Iterator[None]:
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def apply_lm_head(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Logits of a hidden state through the model's own final norm and head.

    The language model's own ``forward`` runs, with a decoder that returns the given state, so scaling and
    soft-capping of logits are the model's, whatever its architecture.
    """
    decoder = get_decoder(model)
    reader = _replace_decoder(
        model, decoder, _FixedDecoder(decoder, decoder.norm(hidden.to(decoder.norm.weight.device)))
    )
    with torch.no_grad():
        logits: torch.Tensor = reader(
            input_ids=torch.zeros(hidden.shape[:2], dtype=torch.long, device=model.device)
        ).logits
    return logits


class _FixedDecoder(torch.nn.Module):
    """A decoder that has its answer already."""

    def __init__(self, decoder: Any, state: torch.Tensor) -> None:
        super().__init__()
        self.config = decoder.config
        self._state: Any = state

    def forward(self, *_args: Any, **_kwargs: Any) -> Any:
        from transformers.modeling_outputs import MoeModelOutputWithPast

        return MoeModelOutputWithPast(last_hidden_state=self._state)  # what mixtures of experts look for is None


def _replace_decoder(module: Any, decoder: Any, replacement: torch.nn.Module) -> Any:
    """A copy of the modules above the decoder that leads to another one."""
    copied = shallow_copy(module)
    for name, child in module._modules.items():  # noqa: SLF001
        if child is decoder:
            copied._modules[name] = replacement  # noqa: SLF001
        elif child is not None and any(part is decoder for part in child.modules()):
            copied._modules[name] = _replace_decoder(child, decoder, replacement)  # noqa: SLF001
    return copied
