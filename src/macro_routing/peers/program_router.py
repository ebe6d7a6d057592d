"""Dr.LLM's procedure with MACRO's actions (``Dr.LLM+Ext.``): a router per program step writes a program.

After ``t`` applications router ``t`` sees the current state and chooses among all moves, rejoin and all adds of the
route space; what is not feasible there is masked, in training as in use.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from macro_routing.engine.batching import Tokens, batch_by_length
from macro_routing.errors import MacroError, ModelError, SettingsError
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.routing import add_hidden_state
from macro_routing.peers.layer_router import (
    PaddedPrompts,
    WindowRouters,
    check_prompts,
    check_same_model,
    look,
    read_routers,
    state_width,
    tokens_at_once,
    with_rows,
    write_routers,
)
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.peers.router_training import Lessons, TrainingReport, check_lessons, fit, new_routers
from macro_routing.routes.route import Add, Program, Route
from macro_routing.routes.space import Position, RouteSpace
from macro_routing.search.random_streams import check_seed
from macro_routing.settings import build_settings

ChooseAction = Callable[[list[int], list[Position], list[torch.Tensor]], list[int]]
"""Prompts by their places, where their programs stand and their current states → the action that each takes."""


def walk_programs(
    frozen: FrozenModel,
    space: RouteSpace,
    prompts: Sequence[Tokens],
    choose: ChooseAction,
    *,
    most_tokens: int | None = None,
) -> list[list[int]]:
    """Each prompt's actions, rejoin last, when ``choose`` decided while the prompts ran; what rejoins stops running."""
    check_same_depth(frozen, space)
    check_prompts(prompts)
    actions: list[list[int]] = [[] for _ in prompts]
    for places in batch_by_length([len(prompt) for prompt in prompts], most_tokens or tokens_at_once(frozen.model)):
        batch = PaddedPrompts(frozen.model, [prompts[place] for place in places])
        running = list(range(len(places)))
        positions = dict.fromkeys(running, space.start_position)
        history = [batch.apply(0, running, batch.embedded)]  # of applications: the embeddings are not in it
        while running:
            chosen = choose(
                [places[row] for row in running],
                [positions[row] for row in running],
                batch.without_padding(history[-1], running),
            )
            taken = dict(zip(running, chosen, strict=True))
            for row, action in taken.items():
                actions[places[row]].append(action)
            running = [row for row, action in taken.items() if action != space.rejoin_action]
            positions = {row: space.next_position(positions[row], taken[row]) for row in running}
            adds = {row: add for row in running if (add := space.action_steps[taken[row]][1]) is not None}
            layers = {row: positions[row].layer for row in running}
            history = [*history, _next_state(batch, history, adds, layers)][-(space.window + 1) :]
    return actions


@torch.no_grad()
def _next_state(
    batch: PaddedPrompts, history: list[torch.Tensor], adds: dict[int, Add], layers: dict[int, int]
) -> torch.Tensor:
    """The state after every row's own step: first what it adds, then its layer."""
    state = history[-1]
    for add in set(adds.values()):
        rows = [row for row, own in adds.items() if own == add]
        earlier = history[-1 - add.back][rows]
        state = with_rows(state, rows, add_hidden_state(history[-1][rows], earlier.to(state.device), add.coefficient))
    # Rows have one layer each, so a row still holds its input when its layer's turn comes.
    for layer in sorted(set(layers.values())):
        state = batch.apply(layer, [row for row, own in layers.items() if own == layer], state)
    return state


def check_same_depth(frozen: FrozenModel, space: RouteSpace) -> None:
    """Refuse a space that was made for a deeper or shallower model."""
    if space.layers != frozen.layers:
        raise SettingsError(f"the route space is for {space.layers} layers, but the model has {frozen.layers}")


@dataclass(frozen=True, eq=False)
class ProgramRouters:
    """A router for every program step that some label of the training still had to decide."""

    routers: WindowRouters
    space: RouteSpace
    settings: RouterSettings
    weights_id: str
    """The model that they were trained on."""

    def decide(self, frozen: FrozenModel, prompts: Sequence[Tokens], *, most_tokens: int | None = None) -> list[Route]:
        """The route of every prompt, decided step by step while the prompts run through the model."""
        programs = self.programs(frozen, prompts, most_tokens=most_tokens)
        return [program.expand(self.space.layers) for program in programs]

    def programs(
        self, frozen: FrozenModel, prompts: Sequence[Tokens], *, most_tokens: int | None = None
    ) -> list[Program]:
        """What the routers write; beyond the last router they rejoin."""
        check_same_model(self.weights_id, frozen)

        def choose(_places: list[int], positions: list[Position], states: list[torch.Tensor]) -> list[int]:
            if positions[0].applied > self.routers.count:
                return [self.space.rejoin_action] * len(positions)
            return [int(action) for action in self.logits(positions, states).argmax(dim=-1).tolist()]

        found = walk_programs(frozen, self.space, prompts, choose, most_tokens=most_tokens)
        return [self.space.program_from_actions(actions) for actions in found]

    @torch.no_grad()
    def logits(self, positions: Sequence[Position], states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits ``[prompts, actions]`` for programs at ``positions``, all after equally many applications."""
        logits = look(self.routers, positions[0].applied - 1, states, self.settings.windows)
        return logits.masked_fill(~feasible_at(self.space, positions).to(logits.device), -math.inf)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the routers into the folder ``path``."""
        space = dataclasses.asdict(self.space)
        write_routers(
            path, self.routers, kind="program", settings=self.settings, weights_id=self.weights_id, space=space
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], frozen: FrozenModel) -> ProgramRouters:
        """Read the routers of ``frozen``; those of another model are refused."""
        stored = read_routers(path, "program", frozen)
        values, count = stored.record.get("space"), stored.record.get("routers")
        try:
            space = build_settings(RouteSpace, values if isinstance(values, dict) else {"space": values}, "space")
            check_same_depth(frozen, space)
        except MacroError as error:
            raise ModelError(f"{stored.folder} holds no sound routers: {error}") from None
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < space.max_length:
            raise ModelError(f"{stored.folder} holds {count!r} routers, but its space has 1 to {space.max_length - 1}")
        return cls(stored.routers(count, space.action_count), space, stored.settings, frozen.weights_id)


def feasible_at(space: RouteSpace, positions: Sequence[Position]) -> torch.Tensor:
    """What may be done at each position, ``[positions, actions]``."""
    applied, layer = [at.applied for at in positions], [at.layer for at in positions]
    return torch.from_numpy(space.feasibility_mask[applied, layer])


def train_program_routers(  # noqa: PLR0913
    frozen: FrozenModel,
    space: RouteSpace,
    prompts: Sequence[Tokens],
    programs: Sequence[Program],
    settings: RouterSettings,
    seed: int,
) -> tuple[ProgramRouters, TrainingReport]:
    """Routers that were shown, for each prompt, the actions of its label's program."""
    check_seed(seed)
    check_lessons(prompts, programs)
    check_same_depth(frozen, space)
    labels = [space.program_to_actions(program) for program in programs]
    # At the greatest length only rejoin is left, so there is nothing to decide.
    count = min(max(map(len, labels)), space.max_length - 1)
    if count == 0:
        raise SettingsError(f"max_length (T_max) = {space.max_length} leaves a router nothing to decide")
    lessons = Lessons.blank(
        prompts=len(prompts),
        routers=count,
        classes=space.action_count,
        windows=settings.windows,
        width=state_width(frozen),
    )

    def follow_label(places: list[int], positions: list[Position], states: list[torch.Tensor]) -> list[int]:
        router = positions[0].applied - 1
        actions = [labels[place][router] for place in places]
        if router < count:
            lessons.note(places, router, states, actions)
            lessons.allowed[places, router] = feasible_at(space, positions)
        return actions

    walk_programs(frozen, space, prompts, follow_label)
    generator = torch.Generator().manual_seed(seed)
    routers = new_routers(frozen, count, space.action_count, settings, generator)
    report = fit(routers, lessons, settings, generator)
    return ProgramRouters(routers, space, settings, frozen.weights_id), report
