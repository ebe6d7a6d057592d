"""The routers of Dr.LLM: before every layer a small network decides whether it is skipped, executed or repeated.

A decision is made once per prompt, while the prompt runs through the model. The ordinary engine then generates the
answer with the decided route, so every visit of a layer has keys and values of its own.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from macro_routing.engine.batching import Tokens
from macro_routing.errors import RouteError
from macro_routing.models.frozen import FrozenModel
from macro_routing.peers.layerwise_prompt_batch import batch_prompts
from macro_routing.peers.router_network import (
    StackedRouters,
    check_router_model,
    compute_router_logits,
    get_hidden_size,
    load_saved_routers,
    save_routers,
)
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.peers.router_training import (
    TrainingExamples,
    TrainingReport,
    check_training_labels,
    create_and_train_routers,
)
from macro_routing.routes.route import Route
from macro_routing.search.tree_actions import route_from_drllm_label

MAX_APPLICATIONS = 2
"""A layer is skipped (0), executed (1) or repeated (2): the classes of a layer's router are these counts."""
ChooseCounts = Callable[[list[int], int, list[torch.Tensor]], list[int]]
"""Indices of prompts, a layer and the states entering it → how often each prompt's pass applies the layer."""


def run_prompts_deciding_layer_counts(
    frozen: FrozenModel,
    prompts: Sequence[Tokens],
    choose_times_to_run_layer: ChooseCounts,
    *,
    max_batch_tokens: int | None = None,
) -> list[tuple[int, ...]]:
    """Run prompts through the model while ``choose_times_to_run_layer`` decides; returns each prompt's counts by layer.

    The states that ``choose_times_to_run_layer`` gets at a layer follow from its earlier choices. A pass that has
    applied no layer at all applies the last one.
    """
    counts: list[list[int]] = [[] for _ in prompts]
    for indices, batch in batch_prompts(frozen.model, prompts, max_batch_tokens):
        state = batch.embedded
        for layer in range(frozen.layers):
            chosen = choose_times_to_run_layer(indices, layer, batch.remove_padding(state, range(len(indices))))
            is_last = layer == frozen.layers - 1
            for index, count in zip(indices, chosen, strict=True):
                counts[index].append(max(count, 1) if is_last and not any(counts[index]) else count)
            if is_last:
                break  # the output of the last layer is not needed
            for times in range(1, MAX_APPLICATIONS + 1):
                rows = [row for row, index in enumerate(indices) if counts[index][layer] >= times]
                state = batch.apply_layer(layer, rows, state)
    return [tuple(prompt_counts) for prompt_counts in counts]


@dataclass(frozen=True, eq=False)
class LayerRouters:
    """A router for every layer of one model."""

    routers: StackedRouters
    settings: RouterSettings
    weights_id: str
    """The model that they were trained on."""

    def decide_routes(
        self, frozen: FrozenModel, prompts: Sequence[Tokens], *, max_batch_tokens: int | None = None
    ) -> list[Route]:
        """The route of every prompt, decided layer by layer while the prompts run through the model once."""
        check_router_model(self.weights_id, frozen)

        def choose_times_to_run_layer(_indices: list[int], layer: int, states: list[torch.Tensor]) -> list[int]:
            return [int(count) for count in self.compute_logits(layer, states).argmax(dim=-1).tolist()]

        counts = run_prompts_deciding_layer_counts(
            frozen, prompts, choose_times_to_run_layer, max_batch_tokens=max_batch_tokens
        )
        return [route_from_drllm_label(prompt_counts) for prompt_counts in counts]

    @torch.no_grad()
    def compute_logits(self, layer: int, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits ``[prompts, 3]`` for the states ``[tokens, width]`` entering ``layer``."""
        return compute_router_logits(self.routers, layer, states, self.settings.windows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the routers into the folder ``path``."""
        save_routers(path, self.routers, kind="layers", settings=self.settings, weights_id=self.weights_id)

    @classmethod
    def load(cls, path: str | os.PathLike[str], frozen: FrozenModel) -> "LayerRouters":
        """Read the routers of ``frozen``; routers of another model are rejected."""
        saved = load_saved_routers(path, "layers", frozen)
        return cls(saved.restore_saved_routers(frozen.layers, MAX_APPLICATIONS + 1), saved.settings, frozen.weights_id)


def train_layer_routers(
    frozen: FrozenModel,
    prompts: Sequence[Tokens],
    labels: Sequence[Sequence[int]],
    settings: RouterSettings,
    seed: int,
) -> tuple[LayerRouters, TrainingReport]:
    """Train routers on how often each prompt's label applies each layer (0, 1 or 2 times)."""
    check_training_labels(prompts, labels, seed)
    for number, label in enumerate(labels, 1):
        if len(label) != frozen.layers:
            raise RouteError(f"label {number} is for {len(label)} layers, but the model has {frozen.layers}")
        route_from_drllm_label(label)  # rejects counts that cannot be executed
    examples = TrainingExamples.create_empty(
        prompts=len(prompts),
        routers=frozen.layers,
        classes=MAX_APPLICATIONS + 1,
        windows=settings.windows,
        width=get_hidden_size(frozen),
    )

    def follow_and_record_label(indices: list[int], layer: int, states: list[torch.Tensor]) -> list[int]:
        counts = [labels[index][layer] for index in indices]
        examples.record_router_targets(indices, layer, states, counts)
        return counts

    run_prompts_deciding_layer_counts(frozen, prompts, follow_and_record_label)
    routers, report = create_and_train_routers(frozen, examples, settings, seed)
    return LayerRouters(routers, settings, frozen.weights_id), report
