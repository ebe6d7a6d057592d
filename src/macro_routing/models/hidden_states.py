"""Parts of a forward pass: what layers receive, the hidden states after them, and logits of a state (logit lens)."""

import functools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from macro_routing.errors import ModelError
from macro_routing.models.find_decoder import get_decoder, remove_hooks_on_exit
from macro_routing.models.layer_copies import copy_model_with_decoder, shallow_copy


def collect_hidden_states(model: Any, input_ids: torch.Tensor, **inputs: Any) -> list[torch.Tensor]:
    """Collect the hidden state after each step, before the final norm; the model may be routed or not.

    There is one per step of the route; the embeddings are not included.
    """
    if not isinstance(input_ids, torch.Tensor):
        raise ModelError(f"collect_hidden_states takes a tensor of token ids, not {type(input_ids).__name__}")
    states: list[torch.Tensor] = []

    def record_hidden_state(_module: Any, _args: Any, output: Any) -> None:
        states.append(output[0] if isinstance(output, tuple) else output)

    layers = get_decoder(model).layers
    with remove_hooks_on_exit(layer.register_forward_hook(record_hidden_state) for layer in layers), torch.no_grad():
        model(input_ids, use_cache=False, **inputs)
    return states


def apply_lm_head(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Compute the logits of a hidden state with the model's own final norm and head.

    The language model's own ``forward`` runs, with a decoder that returns the given state, so scaling and
    soft-capping of logits are the model's, whatever its architecture.
    """
    decoder = get_decoder(model)
    normed = decoder.norm(hidden.to(decoder.norm.weight.device))
    reader = copy_model_with_decoder(model, decoder, _DecoderReturningGivenState(decoder, normed))
    with torch.no_grad():
        logits: torch.Tensor = reader(torch.zeros(hidden.shape[:2], dtype=torch.long, device=model.device)).logits
    return logits


class _DecoderReturningGivenState(nn.Module):
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


@torch.no_grad()
def compute_block_influence(model: Any, batches: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """How much each layer changes its input in the standard pass, as 1 - cosine(input, output).

    The mean over the tokens of batches of (ids, mask).
    """
    layers = get_decoder(model).layers
    totals, tokens = [0.0] * len(layers), 0
    for ids, mask in batches:
        real = mask.bool()
        tokens += int(real.sum())
        changes: list[float] = []

        def record_cosine_distance(
            _layer: Any, args: Any, kwargs: Any, output: Any, real: Any = real, into: Any = changes
        ) -> None:
            inputs = args[0] if args else kwargs["hidden_states"]
            outputs = output[0] if isinstance(output, tuple) else output
            cosine = torch.cosine_similarity(
                inputs[real.to(inputs.device)].float(), outputs[real.to(outputs.device)].float()
            )
            into.append(float((1 - cosine).sum()))

        with remove_hooks_on_exit(
            layer.register_forward_hook(record_cosine_distance, with_kwargs=True) for layer in layers
        ):
            model(ids, attention_mask=mask, use_cache=False, logits_to_keep=1)
        totals = [total + change for total, change in zip(totals, changes, strict=True)]
    return [total / tokens for total in totals]


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """The embeddings of some tokens, and each layer's other arguments for them."""

    embedded: torch.Tensor
    arguments: tuple[dict[str, Any], ...]
    """By layer; the cache is not among them."""
    cache_name: str
    """The name under which layers take their cache."""


@torch.no_grad()
def compute_layer_keyword_arguments(
    model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor, *, cached: int
) -> LayerInputs:
    """Compute what every layer receives for tokens that follow ``cached`` others; ``attention_mask`` covers both.

    Masks, rotary tables and positions depend on token positions and cache length, not on hidden states. So no layer
    runs: a copy of the decoder whose layers only record their arguments gives them, for every architecture alike.
    """
    from transformers import DynamicCache

    decoder = get_decoder(model)
    recorded: list[tuple[torch.Tensor, dict[str, Any]]] = []
    copied = shallow_copy(decoder)
    copied._modules["layers"] = nn.ModuleList(_make_recording_layer(layer, recorded) for layer in decoder.layers)  # noqa: SLF001
    cache = DynamicCache(config=model.config)
    if cached:
        stand_in = torch.zeros(len(input_ids), 1, cached, 1, device=input_ids.device)
        for number in range(len(decoder.layers)):
            cache.update(stand_in, stand_in, number)
    copied(
        input_ids,
        attention_mask=attention_mask,
        position_ids=position_ids,
        past_key_values=cache,
        use_cache=True,
    )
    name = next(key for key, value in recorded[0][1].items() if value is cache)
    arguments = tuple({key: value for key, value in kwargs.items() if key != name} for _, kwargs in recorded)
    return LayerInputs(recorded[0][0], arguments, name)


_EMPTY_LAYERS: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()


def get_cache_layer_templates(model: Any) -> list[Any]:
    """An empty cache layer per layer of the model, to be copied and never filled.

    Made once per model: making them from the configuration takes longer than running a small layer.
    """
    from transformers import DynamicCache

    if model not in _EMPTY_LAYERS:
        _EMPTY_LAYERS[model] = list(DynamicCache(config=model.config).layers)
    return _EMPTY_LAYERS[model]


def _make_recording_layer(layer: Any, recorded: list[Any]) -> Any:
    copied = shallow_copy(layer, _make_input_recording_layer_class(layer.__class__))
    # Accelerate's hook would move the layer's weights for nothing.
    copied.__dict__.pop("forward", None)
    # Hooks that others have set must not see a run either.
    copied._forward_hooks, copied._forward_pre_hooks = OrderedDict(), OrderedDict()  # noqa: SLF001
    copied.macro_recorded = recorded
    return copied


@functools.cache
def _make_input_recording_layer_class(kind: Any) -> type[nn.Module]:
    def forward(self: Any, hidden_states: torch.Tensor, *_args: Any, **kwargs: Any) -> torch.Tensor:
        self.macro_recorded.append((hidden_states, kwargs))
        return hidden_states

    return type(f"Recording{kind.__name__}", (kind,), {"forward": forward, "__module__": __name__})
