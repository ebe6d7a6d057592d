"""Training of the routers: supervised learning of each prompt's label along the label's own route.

The states are collected once, by executing each prompt's label (teacher forcing); only their pooled windows are kept,
which is all that a router sees. The rest is plain training of small networks without the model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from macro_routing.engine.batching import Tokens
from macro_routing.errors import SettingsError
from macro_routing.models.frozen import FrozenModel
from macro_routing.peers.router_network import StackedRouters, get_hidden_size, pool_windows
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.settings import check_seed

NO_DECISION = -1
"""The target after the end of a prompt's label."""


@dataclass(frozen=True)
class TrainingReport:
    """Data and result of a training."""

    prompts: int
    class_counts: tuple[int, ...]
    """Number of decisions by class."""
    class_weights: tuple[float, ...]
    losses: tuple[float, ...]
    """Mean training loss by epoch."""
    accuracy: float
    """Share of correct decisions of the trained routers along the labels' own routes."""


@dataclass(frozen=True, eq=False)
class TrainingExamples:
    """What each router sees of each prompt, and its target decision; in main memory."""

    pooled: torch.Tensor
    """``[prompts, routers, windows, width]``"""
    weights: torch.Tensor
    """``[prompts, windows]``: each window's weight in its prompt's mean."""
    targets: torch.Tensor
    """``[prompts, routers]``: the correct class, or ``NO_DECISION``."""
    allowed: torch.Tensor
    """``[prompts, routers, classes]``: whether a class is feasible."""

    @classmethod
    def create_empty(cls, *, prompts: int, routers: int, classes: int, windows: int, width: int) -> "TrainingExamples":
        """No decisions, all classes feasible."""
        return cls(
            torch.zeros(prompts, routers, windows, width),
            torch.zeros(prompts, windows),
            torch.full((prompts, routers), NO_DECISION),
            torch.ones(prompts, routers, classes, dtype=torch.bool),
        )

    def record_router_targets(
        self, indices: Sequence[int], router: int, states: Sequence[torch.Tensor], targets: Sequence[int]
    ) -> None:
        """Record the states and targets of one router for the prompts at ``indices``."""
        pooled, weights = pool_windows(states, self.pooled.shape[2])
        self.pooled[list(indices), router] = pooled.cpu()
        self.weights[list(indices)] = weights.cpu()
        self.targets[list(indices), router] = torch.tensor(targets)

    @property
    def decision_mask(self) -> torch.Tensor:
        """``[prompts, routers]``: whether there is a decision to learn."""
        return self.targets != NO_DECISION


def compute_class_weights(counts: Sequence[int], beta: float) -> torch.Tensor:
    """Weights by the inverse of the effective number of samples, ``(1 - βⁿ) / (1 - β)``.

    They average 1 over the classes that occur; a class that never occurs has weight 0.
    """
    effective = [float(count) if beta == 1 else (1 - beta**count) / (1 - beta) for count in counts]
    inverse = torch.tensor([1 / number if number else 0.0 for number in effective], dtype=torch.float64)
    return (inverse * sum(map(bool, counts)) / inverse.sum()).float()


def focal_loss(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, gamma: float) -> torch.Tensor:
    """``-w (1 - p)^γ log p`` of each target's probability ``p`` and class weight ``w``; not reduced."""
    log_probability = logits.log_softmax(dim=-1).gather(-1, targets[..., None])[..., 0]
    # Away from exactly 1, where the power has no derivative for γ below 1.
    missing = (1 - log_probability.exp()).clamp(min=1e-12)
    return -weights[targets] * missing**gamma * log_probability


def fit_routers(
    routers: StackedRouters, examples: TrainingExamples, settings: RouterSettings, generator: torch.Generator
) -> TrainingReport:
    """Train ``routers`` in place, in an order of prompts drawn from ``generator``.

    Every prompt has the same weight, however many decisions it has. A batch has ``accumulation`` prompts; the last
    batch of an epoch may be smaller.
    """
    prompts = len(examples.targets)
    classes = examples.allowed.shape[2]
    counts = examples.targets[examples.decision_mask].bincount(minlength=classes).tolist()
    weights = compute_class_weights(counts, settings.effective_beta).to(routers.inner.device)
    optimizer = torch.optim.AdamW(routers.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    steps = settings.epochs * math.ceil(prompts / settings.accumulation)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses = []
    for _ in range(settings.epochs):
        total = 0.0
        order = torch.randperm(prompts, generator=generator)
        for batch in torch.split(order, settings.accumulation):
            optimizer.zero_grad()
            loss = _compute_router_loss_per_prompt(routers, examples, batch, weights, settings.focal_gamma)
            loss.mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach().sum())
        losses.append(total / prompts)
    routers.requires_grad_(requires_grad=False)
    routers.zero_grad()
    accuracy = _compute_router_accuracy(routers, examples, settings.accumulation)
    return TrainingReport(prompts, tuple(counts), tuple(weights.tolist()), tuple(losses), accuracy)


def _compute_router_logits(routers: StackedRouters, examples: TrainingExamples, batch: torch.Tensor) -> torch.Tensor:
    device = routers.inner.device
    logits: torch.Tensor = routers(examples.pooled[batch].to(device), examples.weights[batch].to(device))
    return logits.masked_fill(~examples.allowed[batch].to(device), -math.inf)


def _compute_router_loss_per_prompt(
    routers: StackedRouters, examples: TrainingExamples, batch: torch.Tensor, weights: torch.Tensor, gamma: float
) -> torch.Tensor:
    """Mean loss of each prompt over its own decisions."""
    logits = _compute_router_logits(routers, examples, batch)
    decision_mask = examples.decision_mask[batch].to(logits.device)
    targets = examples.targets[batch].to(logits.device)
    # Without a decision the loss is not computed: a masked class would make it infinite, and 0 · ∞ is not 0.
    losses = torch.zeros(decision_mask.shape, device=logits.device)
    losses[decision_mask] = focal_loss(logits[decision_mask], targets[decision_mask], weights, gamma)
    return losses.sum(dim=1) / decision_mask.sum(dim=1)


@torch.no_grad()
def _compute_router_accuracy(routers: StackedRouters, examples: TrainingExamples, batch_size: int) -> float:
    correct = sum(
        int((_compute_router_logits(routers, examples, batch).argmax(dim=-1).cpu() == examples.targets[batch]).sum())
        for batch in torch.split(torch.arange(len(examples.targets)), batch_size)
    )
    return correct / int(examples.decision_mask.sum())


def create_and_train_routers(
    frozen: FrozenModel, examples: TrainingExamples, settings: RouterSettings, seed: int
) -> tuple[StackedRouters, TrainingReport]:
    """Create routers of the examples' shape and train them; drawn on the CPU, so a seed gives the same everywhere."""
    generator = torch.Generator().manual_seed(seed)
    count, classes = examples.allowed.shape[1:]
    routers = StackedRouters(count, get_hidden_size(frozen), classes, settings.hidden, generator)
    routers.to(frozen.model.device)
    return routers, fit_routers(routers, examples, settings, generator)


def check_training_labels(prompts: Sequence[Tokens], labels: Sequence[object], seed: int) -> None:
    """Reject a training set without prompts, or with another number of labels, and bad seeds."""
    check_seed(seed)
    if not prompts or len(prompts) != len(labels):
        raise SettingsError(
            f"routers need at least one prompt and a label for each,"
            f" not {len(prompts)} prompts and {len(labels)} labels"
        )
