"""Logit lens: the hidden state after every step, and its logits through the model's own head."""

from typing import Any

import torch

from macro_routing.errors import ModelError
from macro_routing.models.decoder import get_decoder, remove_hooks_on_exit
from macro_routing.models.routing import shallow_copy


def collect_hidden_states(model: Any, input_ids: torch.Tensor, **inputs: Any) -> list[torch.Tensor]:
    """Collect the hidden state after each step, before the final norm; the model may be routed or not.

    There is one per step of the route; the embeddings are not included.
    """
    if not isinstance(input_ids, torch.Tensor):
        raise ModelError(f"collect_hidden_states takes a tensor of token ids, not {type(input_ids).__name__}")
    states: list[torch.Tensor] = []

    def keep(_module: Any, _args: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    layers = get_decoder(model).layers
    with remove_hooks_on_exit(layer.register_forward_hook(keep) for layer in layers), torch.no_grad():
        model(input_ids, use_cache=False, **inputs)
    return states


def apply_lm_head(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Compute the logits of a hidden state with the model's own final norm and head.

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
    """A decoder that returns a fixed state."""

    def __init__(self, decoder: Any, state: torch.Tensor) -> None:
        super().__init__()
        self.config = decoder.config
        self._state: Any = state

    def forward(self, *_args: Any, **_kwargs: Any) -> Any:
        from transformers.modeling_outputs import MoeModelOutputWithPast

        return MoeModelOutputWithPast(
            last_hidden_state=self._state
        )  # router logits, which mixture-of-experts models read, are None


def _replace_decoder(module: Any, decoder: Any, replacement: torch.nn.Module) -> Any:
    """Copy the modules above the decoder, with another decoder inside."""
    copied = shallow_copy(module)
    for name, child in module._modules.items():  # noqa: SLF001
        if child is decoder:
            copied._modules[name] = replacement  # noqa: SLF001
        elif child is not None and any(part is decoder for part in child.modules()):
            copied._modules[name] = _replace_decoder(child, decoder, replacement)  # noqa: SLF001
    return copied
