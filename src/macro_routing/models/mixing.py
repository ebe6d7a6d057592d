"""Run a mixture on a frozen model: all members in one forward pass, which share what they have in common.

The members' steps form a prefix tree. A mixed model is a routed model whose steps are the nodes of that tree, each with
a cache slot of its own; a step that begins a branch takes the state where the branch leaves. The last step returns the
final states of all members, and after the model's own head the logits are added with their weights. Their sum differs
from the sum of the log-probabilities by a number that is the same for all tokens, so both predict the same.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from macro_routing.errors import ModelError
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.layer_copies import (
    SavedStates,
    add_hidden_state,
    copy_with_cache_slot,
    create_saved_states_per_pass,
    list_output_recorded_classes,
    make_config_with_entry_per_step,
    make_routed_copy,
    shallow_copy,
)
from macro_routing.models.support import get_text_config
from macro_routing.routes.mixture import Mixture, number_prefixes
from macro_routing.routes.route import Route, Step

PLAUSIBILITY = 0.1
"""Tokens less probable than this share of the most probable one are not chosen, as in contrastive decoding."""
_IMPLAUSIBLE_GAP = 60.0
"""Between the logits of plausible and implausible tokens: sampling meets no implausible one, but they stay in order for
what forbids tokens: a minimum length, a grammar, a bias of -100."""


@dataclass(frozen=True)
class MixtureStep:
    """A node of the members' prefix tree."""

    step: Step
    parent: int | None
    """The step whose output is its input; None: the embeddings."""
    add_source: int | None
    """The step whose output is added."""
    ends: tuple[int, ...]
    """Members whose last step this is."""


def plan_mixture_steps(routes: Sequence[Route]) -> list[MixtureStep]:
    """The prefix tree of ``routes``, every step after its parent."""
    slots = number_prefixes(routes)
    return [
        MixtureStep(
            path[-1],
            slots.get(path[:-1]),
            None if path[-1].add is None else slots[path[: len(path) - 1 - path[-1].add.back]],
            tuple(member for member, route in enumerate(routes) if route.steps == path),
        )
        for path in slots
    ]


def list_saved_steps(steps: Sequence[MixtureStep]) -> set[int | None]:
    """The steps whose outputs are read later than by the next step; None: the embeddings."""
    branching = {node.parent for slot, node in enumerate(steps) if not follows_last_step(node, slot)}
    return branching | {node.add_source for node in steps if node.add_source is not None}


def follows_last_step(node: MixtureStep, slot: int) -> bool:
    """Whether the step in ``slot`` takes the output of the one before; otherwise it begins a branch."""
    return node.parent == (slot - 1 if slot else None)


def apply_mixture(model: Any, mixture: Mixture) -> Any:
    """Make a model that predicts with ``mixture``, with the weights of ``model``; ``apply_route`` checks both.

    Its logits are the weighted sums of the members' logits. Tokens that the standard pass (or, without it, the member
    with the largest weight) finds implausible come after all others.
    """
    mixed = apply_members(model, mixture)
    mixed.register_forward_hook(functools.partial(_combine_output, mixture))
    return mixed


def apply_members(model: Any, mixture: Mixture) -> Any:
    """Make a model whose logits are those of all members, one member's batch after the other's."""
    steps = plan_mixture_steps(mixture.routes)
    config = make_config_with_entry_per_step(model.config, [node.step.layer for node in steps])
    text_config = get_text_config(config)
    decoder = get_decoder(model)
    mixed_decoder = shallow_copy(decoder)
    mixed_decoder.config = text_config
    recorded = list_output_recorded_classes(model)
    mixed_decoder.layers = nn.ModuleList(
        _make_layers(decoder.layers, steps, text_config, recorded, len(mixture.members))
    )
    mixed_decoder.register_forward_pre_hook(create_saved_states_per_pass, with_kwargs=True)
    mixed = make_routed_copy(model, mixed_decoder, config, mixture)
    mixed.register_forward_pre_hook(_reject_unsupported_arguments, with_kwargs=True)
    return mixed


def _make_layers(
    layers: Any, steps: Sequence[MixtureStep], config: Any, recorded: tuple[type, ...], members: int
) -> list[Any]:
    saved = list_saved_steps(steps)
    copies = []
    for slot, node in enumerate(steps):
        layer = layers[node.step.layer]
        copied = copy_with_cache_slot(layer, slot, config, recorded, make_mixing_layer_class(layer.__class__))
        copied.macro_slot = slot
        copied.macro_step = node
        copied.macro_follows = follows_last_step(node, slot)
        copied.macro_saves_output = slot in saved
        copied.macro_keeps_embeddings = slot == 0 and None in saved
        copied.macro_members = members if slot == len(steps) - 1 else 0
        copies.append(copied)
    return copies


@functools.cache
def make_mixing_layer_class(kind: Any) -> type[nn.Module]:
    """Make a layer class that begins branches, adds states, and keeps the final states of members."""

    def forward(self: Any, hidden_states: torch.Tensor, *args: Any, macro_states: SavedStates, **kwargs: Any) -> Any:
        node, states = self.macro_step, macro_states.states
        if self.macro_keeps_embeddings:
            states[None] = hidden_states
        if not self.macro_follows:
            hidden_states = states[node.parent].to(hidden_states.device)
        if node.add_source is not None:
            earlier = states[node.add_source].to(hidden_states.device)
            hidden_states = add_hidden_state(hidden_states, earlier, node.step.add.coefficient)
        output = kind.forward(self, hidden_states, *args, **kwargs)
        final = output[0] if isinstance(output, tuple) else output
        if self.macro_saves_output:
            states[self.macro_slot] = final
        for member in node.ends:
            states["end", member] = final
        if not self.macro_members:
            return output
        final_states = torch.cat([states["end", member].to(final.device) for member in range(self.macro_members)])
        return (final_states, *output[1:]) if isinstance(output, tuple) else final_states

    return type(f"Mixing{kind.__name__}", (kind,), {"forward": forward, "__module__": __name__})


def _reject_unsupported_arguments(_model: Any, _args: Any, kwargs: Mapping[str, Any]) -> None:
    if kwargs.get("labels") is not None:
        raise ModelError("a mixture computes no loss: leave out labels, and compute it from the logits")
    if kwargs.get("return_dict") is False:
        raise ModelError("a mixture returns its output by name: leave out return_dict=False")


def _combine_output(mixture: Mixture, _model: Any, _args: Any, output: Any) -> Any:
    output.logits = combine_logits(output.logits.chunk(len(mixture.members)), mixture)
    return output


def combine_logits(logits: Sequence[torch.Tensor], mixture: Mixture) -> torch.Tensor:
    """The weighted sum of the members' logits, with implausible tokens after all others."""
    values = [member.float() for member in logits]
    return move_implausible_last(add_weighted(values, mixture), values, mixture)


def add_weighted(values: Sequence[torch.Tensor], mixture: Mixture) -> torch.Tensor:
    """The weighted sum of the members' values, of all tokens."""
    total = sum(weight * member for weight, member in zip(mixture.weights, values, strict=True))
    assert isinstance(total, torch.Tensor)
    return total


def move_implausible_last(total: torch.Tensor, logits: Sequence[torch.Tensor], mixture: Mixture) -> torch.Tensor:
    """``total`` of plausible tokens; tokens that the reference finds implausible follow in the reference's order."""
    reference = logits[mixture.reference]
    below_best = reference - reference.amax(-1, keepdim=True)
    plausible = find_plausible(reference)
    lowest = total.masked_fill(~plausible, float("inf")).amin(-1, keepdim=True)
    return torch.where(plausible, total, lowest - _IMPLAUSIBLE_GAP + below_best)


def find_plausible(reference: torch.Tensor, share: float = PLAUSIBILITY) -> torch.Tensor:
    """Tokens that are at least ``share`` as probable as the most probable one; all where a logit is not a number."""
    return ~(reference < reference.amax(-1, keepdim=True) + math.log(share))
