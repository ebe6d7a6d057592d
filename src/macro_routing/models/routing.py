"""Run a route on a frozen model: shared weights, one cache slot per step, adds at any step (specification §1).

``apply_route`` makes a new model object in milliseconds. The model picks masks and rotary tables by
``config.layer_types``, so a routed model is a shallow copy of the decoder whose configuration has one entry per step,
and whose steps are copies of layers that share their weights (``layer_copies``). One code path for all architectures;
no model file is edited.
"""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.layer_copies import (
    SavedStates,
    add_hidden_state,
    check_route_and_model,
    copy_with_cache_slot,
    create_saved_states_per_pass,
    list_output_recorded_classes,
    make_config_with_entry_per_step,
    make_routed_copy,
    shallow_copy,
)
from macro_routing.models.mixing import apply_mixture
from macro_routing.models.support import get_text_config
from macro_routing.routes.mixture import Mixture, RouteOrMixture, to_mixture, to_simplest_form
from macro_routing.routes.route import Route


def apply_route(model: Any, route: RouteOrMixture, *, allow_untested: bool = False) -> Any:
    """Make a model that executes ``route``, or predicts with a mixture of routes, with the weights of ``model``.

    ``model`` is what ``load_model`` returns, or a transformers model.
    The result works wherever the model did: ``forward``, ``generate``, dynamic and static caches, padding,
    ``torch.compile``, ``device_map`` and quantized weights. ``model`` itself does not change. A mixture computes
    no loss and returns its output by name; implausible tokens have lower logits than all others.
    """
    if isinstance(model, FrozenModel):
        model, allow_untested = model.model, True  # it was checked when it was loaded
    check_route_and_model(model, route, allow_untested)
    route = to_simplest_form(to_mixture(route))
    if isinstance(route, Mixture):
        return apply_mixture(model, route)
    config = make_config_with_entry_per_step(model.config, [step.layer for step in route.steps])
    decoder = get_decoder(model)
    routed_decoder = shallow_copy(decoder)
    routed_decoder.config = get_text_config(config)
    routed_decoder.layers = nn.ModuleList(
        _make_step_layers(decoder.layers, route, routed_decoder.config, list_output_recorded_classes(model))
    )
    if route.has_adds:
        routed_decoder.register_forward_pre_hook(create_saved_states_per_pass, with_kwargs=True)
    return make_routed_copy(model, routed_decoder, config, route)


# --- steps --------------------------------------------------------------------------------------------------------


def _make_step_layers(layers: Any, route: Route, config: Any, recorded: tuple[type, ...]) -> Iterator[Any]:
    # The input of step ``t`` is ``h_t``, the output of the step before; so ``h_{t-back}`` is the input of ``t - back``.
    sources = {slot: slot - step.add.back for slot, step in enumerate(route.steps) if step.add}
    for slot, step in enumerate(route.steps):
        layer = layers[step.layer]
        kind = make_adding_layer_class(layer.__class__) if route.has_adds else None
        routed = copy_with_cache_slot(layer, slot, config, recorded, kind)
        if route.has_adds:
            routed.macro_add = step.add
            routed.macro_source = sources.get(slot)
            routed.macro_keep = slot if slot in sources.values() else None
        yield routed


@functools.cache
def make_adding_layer_class(kind: Any) -> type[nn.Module]:
    """Make a layer class with an add in front: it reads and writes the saved states, then runs the layer."""

    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, macro_states: SavedStates, **kwargs: Any) -> Any:
        if self.macro_keep is not None:
            macro_states.states[self.macro_keep] = hidden_states
        if self.macro_add is not None:
            earlier = macro_states.states[self.macro_source].to(hidden_states.device)
            hidden_states = add_hidden_state(hidden_states, earlier, self.macro_add.coefficient)
        return kind.forward(self, hidden_states, *args, **kwargs)

    return type(f"Adding{kind.__name__}", (kind,), {"forward": forward, "__module__": __name__})
