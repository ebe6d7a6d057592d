"""A slow reference implementation of routes, which shares no code with ``apply_route``.

An ordinary forward pass records the arguments of each layer besides the hidden state (mask, rotary tables,
positions); none of them depends on the hidden state. Then the layers are called one by one, without a cache.
"""

import copy
from typing import Any

import torch
from torch import nn

from macro_routing.models.find_decoder import get_decoder, remove_hooks_on_exit
from macro_routing.models.hidden_states import apply_lm_head
from macro_routing.models.support import get_text_config
from macro_routing.routes.route import Route


def compute_route_reference_logits(model: Any, route: Route, input_ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Logits of the route on the untouched ``model``, layer by layer."""
    decoder = get_decoder(model)
    embedded, arguments = _capture_layer_arguments(model, decoder, input_ids, **inputs)
    states = [embedded]
    with torch.no_grad():
        for step in route.steps:
            hidden = states[-1]
            if step.add is not None:
                earlier = states[len(states) - 1 - step.add.back]
                hidden = hidden + step.add.coefficient * earlier.to(hidden.device)
            output = decoder.layers[step.layer](hidden, **arguments[step.layer])
            states.append(output[0] if isinstance(output, tuple) else output)
    return apply_lm_head(model, states[-1])


def _capture_layer_arguments(
    model: Any, decoder: Any, input_ids: torch.Tensor, **inputs: Any
) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """Record the first layer's input and the other arguments of every layer in one ordinary pass without a cache."""
    first: list[torch.Tensor] = []
    arguments: list[dict[str, Any]] = []

    def record_layer_arguments(_module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        first.extend(args[:1] if not first else ())
        arguments.append(dict(kwargs))

    handles = (layer.register_forward_pre_hook(record_layer_arguments, with_kwargs=True) for layer in decoder.layers)
    with remove_hooks_on_exit(handles), torch.no_grad():
        model(input_ids, use_cache=False, **inputs)
    return first[0], arguments


def build_unrolled_model(model: Any, route: Route) -> Any:
    """Build an ordinary model with one layer per step, for a route without adds.

    The architecture's own constructor makes it. Its weights are the tensors of ``model``, so it takes no extra memory.
    """
    config = copy.deepcopy(model.config)
    text = get_text_config(config)
    kinds = getattr(text, "layer_types", None)
    text.num_hidden_layers = route.length
    if kinds is not None:
        text.layer_types = [kinds[step.layer] for step in route.steps]
    with torch.device("meta"):
        unrolled = type(model)(config)
    unrolled.load_state_dict(_unroll_state_dict(model, route), assign=True, strict=True)
    _take_computed_buffers_from_original(model, unrolled)
    return unrolled.eval().requires_grad_(requires_grad=False)


def _unroll_state_dict(model: Any, route: Route) -> dict[str, torch.Tensor]:
    """Make the state dict of the unrolled model: entries of layers once per step, all others unchanged."""
    layers = get_decoder(model).layers
    prefix = next(name for name, module in model.named_modules() if module is layers) + "."
    state = model.state_dict()
    weights = {name: value for name, value in state.items() if not name.startswith(prefix)}
    for name, value in state.items():
        if name.startswith(prefix):
            number, _, rest = name.removeprefix(prefix).partition(".")
            indices = [index for index, step in enumerate(route.steps) if step.layer == int(number)]
            weights |= {f"{prefix}{index}.{rest}": value for index in indices}
    return weights


def _take_computed_buffers_from_original(model: Any, unrolled: Any) -> None:
    """Take buffers that are computed, not loaded (rotary frequencies, embedding scales), from the original."""
    originals = dict(model.named_modules())
    for name, module in unrolled.named_modules():
        for key, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:
                original: nn.Module = originals[name]
                module._buffers[key] = original._buffers[key]  # noqa: SLF001
