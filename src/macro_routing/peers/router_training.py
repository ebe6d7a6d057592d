"""How routers are trained: decisions that were right for a prompt, shown to the routers along their own route.

The states are collected once, by executing each prompt's label (teacher forcing); only their pooled windows are kept,
which is all that a router sees. What follows is plain training of small networks, and the model takes no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from macro_routing.engine.batching import Tokens
from macro_routing.errors import RouteError, SettingsError
from macro_routing.models.frozen import FrozenModel
from macro_routing.peers.layer_router import (
    MOST_APPLICATIONS,
    LayerRouters,
    WindowRouters,
    check_prompts,
    pool_prompts,
    state_width,
    walk_layers,
)
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.search.random_streams import check_seed
from macro_routing.search.tree_actions import route_from_counts

__all__ = [
    "Lessons",
    "TrainingReport",
    "class_weights",
    "fit",
    "focal_loss",
    "train_routers",
]

NO_DECISION = -1
"""The target where a prompt's label has ended already."""


@dataclass(frozen=True)
class TrainingReport:
    """What a training was about and how it went."""

    prompts: int
    class_counts: tuple[int, ...]
    """How many of the decisions belong to each class."""
    class_weights: tuple[float, ...]
    losses: tuple[float, ...]
    """Mean loss of every epoch's prompts, each as it was when the prompt was seen."""
    accuracy: float
    """Share of the decisions that the trained routers get right along the labels' own routes."""


@dataclass(frozen=True, eq=False)
class Lessons:
    """What each router saw of each prompt, and what it should have said; kept in main memory."""

    pooled: torch.Tensor
    """``[prompts, routers, windows, width]``"""
    shares: torch.Tensor
    """``[prompts, windows]``: each window's share in its prompt's mean."""
    targets: torch.Tensor
    """``[prompts, routers]``: the right class, or ``NO_DECISION``."""
    allowed: torch.Tensor
    """``[prompts, routers, classes]``: what a router may say."""

    @classmethod
    def blank(cls, *, prompts: int, routers: int, classes: int, windows: int, width: int) -> Lessons:
        """Nothing seen, nothing asked, everything allowed."""
        return cls(
            torch.zeros(prompts, routers, windows, width),
            torch.zeros(prompts, windows),
            torch.full((prompts, routers), NO_DECISION),
            torch.ones(prompts, routers, classes, dtype=torch.bool),
        )

    def note(self, places: Sequence[int], router: int, states: Sequence[torch.Tensor], targets: Sequence[int]) -> None:
        """One router's lesson about the prompts at ``places``."""
        pooled, shares = pool_prompts(states, self.pooled.shape[2])
        self.pooled[list(places), router] = pooled.cpu()
        self.shares[list(places)] = shares.cpu()
        self.targets[list(places), router] = torch.tensor(targets)

    @property
    def decided(self) -> torch.Tensor:
        """``[prompts, routers]``: where there is a decision to learn."""
        return self.targets != NO_DECISION


def class_weights(counts: Sequence[int], beta: float) -> torch.Tensor:
    """Weights by the inverse of the effective number of samples, ``(1 - βⁿ) / (1 - β)``.

    They average 1 over the classes that occur; a class that never occurs has weight 0 and no say in that average.
    """
    present = sum(1 for count in counts if count)
    effective = [float(count) if beta == 1 else (1 - beta**count) / (1 - beta) for count in counts]
    inverse = torch.tensor([1 / number if number else 0.0 for number in effective], dtype=torch.float64)
    return (inverse * present / inverse.sum()).float()


def focal_loss(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, gamma: float) -> torch.Tensor:
    """``-w (1 - p)^γ log p`` of each target's probability ``p`` and class weight ``w``; not reduced."""
    log_probability = logits.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]
    # Away from exactly 1, where the power has no derivative for γ below 1.
    missing = (1 - log_probability.exp()).clamp(min=1e-12)
    return -weights[targets] * missing**gamma * log_probability


def fit(
    routers: WindowRouters, lessons: Lessons, settings: RouterSettings, generator: torch.Generator
) -> TrainingReport:
    """Train ``routers`` in place, in an order of prompts drawn from ``generator``.

    Every prompt counts the same, however many decisions it has. Gradients of ``accumulation`` prompts are averaged; the
    prompts of such a group are computed together, which is the same sum. An epoch's last group may be smaller.
    """
    prompts = len(lessons.targets)
    classes = lessons.allowed.shape[2]
    counts = lessons.targets[lessons.decided].bincount(minlength=classes).tolist()
    weights = class_weights(counts, settings.effective_beta).to(routers.inner.device)
    optimizer = torch.optim.AdamW(routers.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    steps = settings.epochs * math.ceil(prompts / settings.accumulation)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses = []
    for _ in range(settings.epochs):
        total = 0.0
        order = torch.randperm(prompts, generator=generator)
        for group in _groups(order, settings.accumulation):
            optimizer.zero_grad()
            loss = _losses(routers, lessons, group, weights, settings.focal_gamma)
            loss.mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach().sum())
        losses.append(total / prompts)
    routers.requires_grad_(requires_grad=False)
    routers.zero_grad()
    accuracy = _accuracy(routers, lessons, settings.accumulation)
    return TrainingReport(prompts, tuple(counts), tuple(weights.tolist()), tuple(losses), accuracy)


def _groups(order: torch.Tensor, size: int) -> list[torch.Tensor]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _logits(routers: WindowRouters, lessons: Lessons, group: torch.Tensor) -> torch.Tensor:
    device = routers.inner.device
    logits: torch.Tensor = routers(lessons.pooled[group].to(device), lessons.shares[group].to(device))
    return logits.masked_fill(~lessons.allowed[group].to(device), -math.inf)


def _losses(
    routers: WindowRouters, lessons: Lessons, group: torch.Tensor, weights: torch.Tensor, gamma: float
) -> torch.Tensor:
    """Each prompt's mean over its own decisions."""
    logits = _logits(routers, lessons, group)
    decided = lessons.decided[group].to(logits.device)
    targets = lessons.targets[group].to(logits.device)
    # Where there is no decision the loss is never computed: a masked class would make it infinite, and 0 · ∞ is no 0.
    each = torch.zeros(decided.shape, device=logits.device)
    each[decided] = focal_loss(logits[decided], targets[decided], weights, gamma)
    return each.sum(dim=1) / decided.sum(dim=1)


@torch.no_grad()
def _accuracy(routers: WindowRouters, lessons: Lessons, group_size: int) -> float:
    right = 0
    for group in _groups(torch.arange(len(lessons.targets)), group_size):
        right += int((_logits(routers, lessons, group).argmax(dim=-1).cpu() == lessons.targets[group]).sum())
    return right / int(lessons.decided.sum())


# --- one router per layer -----------------------------------------------------------------------------------------


def train_routers(
    frozen: FrozenModel,
    prompts: Sequence[Tokens],
    labels: Sequence[Sequence[int]],
    settings: RouterSettings,
    seed: int,
) -> tuple[LayerRouters, TrainingReport]:
    """Routers that were shown, for each prompt, how often its label applies each layer (0, 1 or 2 times)."""
    check_seed(seed)
    check_lessons(prompts, labels)
    for number, label in enumerate(labels, 1):
        if len(label) != frozen.layers:
            raise RouteError(f"label {number} is for {len(label)} layers, but the model has {frozen.layers}")
        route_from_counts(label)  # refuses what cannot be executed
    lessons = _layer_lessons(frozen, prompts, labels, settings)
    generator = torch.Generator().manual_seed(seed)
    routers = new_routers(frozen, frozen.layers, MOST_APPLICATIONS + 1, settings, generator)
    report = fit(routers, lessons, settings, generator)
    return LayerRouters(routers, settings, frozen.weights_id), report


def _layer_lessons(
    frozen: FrozenModel,
    prompts: Sequence[Tokens],
    labels: Sequence[Sequence[int]],
    settings: RouterSettings,
) -> Lessons:
    lessons = Lessons.blank(
        prompts=len(prompts),
        routers=frozen.layers,
        classes=MOST_APPLICATIONS + 1,
        windows=settings.windows,
        width=state_width(frozen),
    )

    def follow_label(places: list[int], layer: int, states: list[torch.Tensor]) -> list[int]:
        counts = [labels[place][layer] for place in places]
        lessons.note(places, layer, states, counts)
        return counts

    walk_layers(frozen, prompts, follow_label)
    return lessons


def new_routers(
    frozen: FrozenModel, count: int, classes: int, settings: RouterSettings, generator: torch.Generator
) -> WindowRouters:
    """Untrained routers for a model's states, drawn on the CPU so that a seed means the same on every device."""
    return WindowRouters(count, state_width(frozen), classes, settings.hidden, generator).to(frozen.model.device)


def check_lessons(prompts: Sequence[Tokens], labels: Sequence[object]) -> None:
    """Refuse a training set without prompts, or with labels that are not theirs."""
    if not prompts or len(prompts) != len(labels):
        raise SettingsError(
            f"routers need at least one prompt and a label for each,"
            f" not {len(prompts)} prompts and {len(labels)} labels"
        )
    check_prompts(prompts)
