"""Dr.LLM's procedure with MACRO's actions (``Dr.LLM+Ext.``): a router per program step chooses its action.

After ``t`` applications router ``t`` sees the current state and chooses among all moves, rejoin and all adds of the
route space; infeasible actions are masked in training and in use.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from macro_routing.engine.batching import Tokens
from macro_routing.errors import MacroError, ModelError, SettingsError
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.layer_copies import add_hidden_state
from macro_routing.peers.layerwise_prompt_batch import PaddedPromptBatch, batch_prompts, copy_with_replaced_rows
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
from macro_routing.routes.route import Add, Program, Route
from macro_routing.routes.space import PartialProgramPosition, RouteSpace
from macro_routing.settings import build_settings

ChooseActions = Callable[[list[int], list[PartialProgramPosition], list[torch.Tensor]], list[int]]
"""Indices of prompts, the positions of their programs and their current states → the action of each."""


def choose_actions_while_prompts_run(
    frozen: FrozenModel,
    space: RouteSpace,
    prompts: Sequence[Tokens],
    choose_actions: ChooseActions,
    *,
    max_batch_tokens: int | None = None,
) -> list[list[int]]:
    """Run prompts through the model while ``choose_actions`` decides; returns each prompt's actions, rejoin last."""
    check_space_layers(frozen, space)
    actions: list[list[int]] = [[] for _ in prompts]
    for indices, batch in batch_prompts(frozen.model, prompts, max_batch_tokens):
        running = list(range(len(indices)))
        positions = dict.fromkeys(running, space.initial_position)
        # After each application; the embeddings are not in it.
        history = [batch.apply_layer(0, running, batch.embedded)]
        while running:
            chosen = choose_actions(
                [indices[row] for row in running],
                [positions[row] for row in running],
                batch.remove_padding(history[-1], running),
            )
            taken = dict(zip(running, chosen, strict=True))
            for row, action in taken.items():
                actions[indices[row]].append(action)
            running = [row for row, action in taken.items() if action != space.rejoin_action]
            positions = {row: space.position_after_action(positions[row], taken[row]) for row in running}
            adds = {
                row: add for row in running if (add := space.action_displacements_and_adds[taken[row]][1]) is not None
            }
            layers = {row: positions[row].layer for row in running}
            history = [*history, _compute_next_hidden_state(batch, history, adds, layers)][-(space.window + 1) :]
    return actions


@torch.no_grad()
def _compute_next_hidden_state(
    batch: PaddedPromptBatch, history: list[torch.Tensor], adds: dict[int, Add], layers: dict[int, int]
) -> torch.Tensor:
    """The state after every row's own step: first its add, then its layer."""
    state = history[-1]
    for add in set(adds.values()):
        rows = [row for row, row_add in adds.items() if row_add == add]
        earlier = history[-1 - add.back][rows]
        state = copy_with_replaced_rows(
            state, rows, add_hidden_state(history[-1][rows], earlier.to(state.device), add.coefficient)
        )
    # Each row has one layer, so it still holds its input when its layer is applied.
    for layer in sorted(set(layers.values())):
        state = batch.apply_layer(layer, [row for row, row_layer in layers.items() if row_layer == layer], state)
    return state


def check_space_layers(frozen: FrozenModel, space: RouteSpace) -> None:
    """Reject a space that was made for a model of another depth."""
    if space.layers != frozen.layers:
        raise SettingsError(f"the route space is for {space.layers} layers, but the model has {frozen.layers}")


@dataclass(frozen=True, eq=False)
class ProgramRouters:
    """A router for every program step that occurs in the training labels."""

    routers: StackedRouters
    space: RouteSpace
    settings: RouterSettings
    weights_id: str
    """The model that they were trained on."""

    def decide_routes(
        self, frozen: FrozenModel, prompts: Sequence[Tokens], *, max_batch_tokens: int | None = None
    ) -> list[Route]:
        """The route of every prompt, decided step by step while the prompts run through the model."""
        return [
            program.to_route(self.space.layers)
            for program in self.choose_program_per_prompt(frozen, prompts, max_batch_tokens=max_batch_tokens)
        ]

    def choose_program_per_prompt(
        self, frozen: FrozenModel, prompts: Sequence[Tokens], *, max_batch_tokens: int | None = None
    ) -> list[Program]:
        """The program of every prompt; after the last router it rejoins."""
        check_router_model(self.weights_id, frozen)

        def choose_actions(
            _indices: list[int], positions: list[PartialProgramPosition], states: list[torch.Tensor]
        ) -> list[int]:
            if positions[0].applied > self.routers.router_count:
                return [self.space.rejoin_action] * len(positions)
            return [int(action) for action in self.compute_logits(positions, states).argmax(dim=-1).tolist()]

        actions_by_prompt = choose_actions_while_prompts_run(
            frozen, self.space, prompts, choose_actions, max_batch_tokens=max_batch_tokens
        )
        return [self.space.program_from_actions(actions) for actions in actions_by_prompt]

    @torch.no_grad()
    def compute_logits(
        self, positions: Sequence[PartialProgramPosition], states: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Logits ``[prompts, actions]`` for programs at ``positions``, all after equally many applications."""
        logits = compute_router_logits(self.routers, positions[0].applied - 1, states, self.settings.windows)
        return logits.masked_fill(~compute_feasible_action_mask(self.space, positions).to(logits.device), -math.inf)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the routers into the folder ``path``."""
        space = dataclasses.asdict(self.space)
        save_routers(
            path, self.routers, kind="program", settings=self.settings, weights_id=self.weights_id, space=space
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], frozen: FrozenModel) -> "ProgramRouters":
        """Read the routers of ``frozen``; routers of another model are rejected."""
        saved = load_saved_routers(path, "program", frozen)
        values, count = saved.record.get("space"), saved.record.get("routers")
        try:
            space = build_settings(RouteSpace, values if isinstance(values, dict) else {"space": values}, "space")
            check_space_layers(frozen, space)
        except MacroError as error:
            raise ModelError(f"{saved.folder} holds invalid routers: {error}") from None
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < space.max_length:
            raise ModelError(f"{saved.folder} holds {count!r} routers, but its space has 1 to {space.max_length - 1}")
        return cls(saved.restore_saved_routers(count, space.action_count), space, saved.settings, frozen.weights_id)


def compute_feasible_action_mask(space: RouteSpace, positions: Sequence[PartialProgramPosition]) -> torch.Tensor:
    """Whether each action is feasible at each position, ``[positions, actions]``."""
    applied, layer = [position.applied for position in positions], [position.layer for position in positions]
    return torch.from_numpy(space.feasibility_mask[applied, layer])


def train_program_routers(  # noqa: PLR0913
    frozen: FrozenModel,
    space: RouteSpace,
    prompts: Sequence[Tokens],
    programs: Sequence[Program],
    settings: RouterSettings,
    seed: int,
) -> tuple[ProgramRouters, TrainingReport]:
    """Train routers on the actions of each prompt's label program."""
    check_training_labels(prompts, programs, seed)
    check_space_layers(frozen, space)
    labels = [space.program_to_actions(program) for program in programs]
    # At the maximum length only rejoin is feasible, so there is nothing to decide.
    count = min(max(map(len, labels)), space.max_length - 1)
    if count == 0:
        raise SettingsError(f"max_length (T_max) = {space.max_length} leaves a router nothing to decide")
    examples = TrainingExamples.create_empty(
        prompts=len(prompts),
        routers=count,
        classes=space.action_count,
        windows=settings.windows,
        width=get_hidden_size(frozen),
    )

    def follow_and_record_label(
        indices: list[int], positions: list[PartialProgramPosition], states: list[torch.Tensor]
    ) -> list[int]:
        router = positions[0].applied - 1
        actions = [labels[index][router] for index in indices]
        if router < count:
            examples.record_router_targets(indices, router, states, actions)
            examples.allowed[indices, router] = compute_feasible_action_mask(space, positions)
        return actions

    choose_actions_while_prompts_run(frozen, space, prompts, follow_and_record_label)
    routers, report = create_and_train_routers(frozen, examples, settings, seed)
    return ProgramRouters(routers, space, settings, frozen.weights_id), report
