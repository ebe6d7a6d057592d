"""A route executed by hand: the oracle for routed models, sharing nothing with how they are built.

An untouched forward pass shows what each layer is given besides the hidden state (mask, rotary tables, positions);
none of it depends on the hidden state. The layers are then called one after the other, without any cache.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from macro_routing.models.decoder import get_decoder
from macro_routing.models.lens import apply_lm_head
from macro_routing.models.support import get_text_config
from macro_routing.routes.route import Route


def reference_logits(model: Any, route: Route, input_ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Logits of the route on the untouched ``model``, layer by layer."""
    decoder = get_decoder(model)
    embedded, given = _capture_layer_arguments(model, decoder, input_ids, **inputs)
    states = [embedded]
    with torch.no_grad():
        for step in route.steps:
            hidden = states[-1]
            if step.add is not None:
                earlier = states[len(states) - 1 - step.add.back]
                hidden = hidden + step.add.coefficient * earlier.to(hidden.device)
            output = decoder.layers[step.layer](hidden, **given[step.layer])
            states.append(output[0] if isinstance(output, tuple) else output)
    return apply_lm_head(model, states[-1])


def _capture_layer_arguments(
    model: Any, decoder: Any, input_ids: torch.Tensor, **inputs: Any
) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """The first layer's input and every layer's other arguments in one ordinary pass without a cache."""
    first: list[torch.Tensor] = []
    given: list[dict[str, Any]] = []

    def note(_module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        first.extend(args[:1] if not first else ())
        given.append(dict(kwargs))

    handles = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in decoder.layers]
    try:
        with torch.no_grad():
            model(input_ids, use_cache=False, **inputs)
    finally:
        for handle in handles:
            handle.remove()
    return first[0], given


def build_unrolled_model(model: Any, route: Route) -> Any:
    """A plain route as an ordinary model with one layer per step, built by the architecture's own constructor.

    Its weights are the model's own tensors, assigned name by name, so it takes no memory; it knows nothing of routes.
    """
    config = copy.deepcopy(model.config)
    text = get_text_config(config)
    kinds = getattr(text, "layer_types", None)
    text.num_hidden_layers = route.length
    if kinds is not None:
        text.layer_types = [kinds[step.layer] for step in route.steps]
    with torch.device("meta"):
        built = type(model)(config)
    weights = _unroll_state_dict(model, route)
    built.load_state_dict(weights, assign=True, strict=True)
    _share_computed_buffers(model, built)
    return built.eval().requires_grad_(requires_grad=False)


def _unroll_state_dict(model: Any, route: Route) -> dict[str, torch.Tensor]:
    """The state dict of the deeper model: layer entries once per step, all others as they are."""
    layers = get_decoder(model).layers
    prefix = next(name for name, module in model.named_modules() if module is layers) + "."
    state = model.state_dict()
    weights = {name: value for name, value in state.items() if not name.startswith(prefix)}
    for name, value in state.items():
        if name.startswith(prefix):
            number, _, rest = name.removeprefix(prefix).partition(".")
            places = [place for place, step in enumerate(route.steps) if step.layer == int(number)]
            weights |= {f"{prefix}{place}.{rest}": value for place in places}
    return weights


def _share_computed_buffers(model: Any, built: Any) -> None:
    """Tables that are computed, not loaded (rotary frequencies, embedding scales), come from the original."""
    originals = dict(model.named_modules())
    for name, module in built.named_modules():
        for key, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:
                original: nn.Module = originals[name]
                module._buffers[key] = original._buffers[key]  # noqa: SLF001
