"""The settings of the guided search and of contrastive decoding."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.errors import SettingsError
from macro_routing.search.policy_settings import check_epsilons
from macro_routing.settings import AllowedRange, CheckedSettings, check_choice, option

KERNEL_NAMES = ("combined", "additive", "similarity", "independent")


@dataclass(frozen=True)
class GuidedSettings(CheckedSettings):
    """The settings of the guided search."""

    iterations: Annotated[int, AllowedRange(1)] = 10
    """Rounds, each with its own share of the training examples."""
    draws: Annotated[int, AllowedRange(3)] = 70
    """Different routes per round, the standard pass among them; more if the budget pays for it. Where mixtures are
    searched within a given budget, half of the routes that it pays for are candidates for members."""
    holdout: Annotated[float, AllowedRange(0, 0.9)] = 0.5
    """Share of the training examples kept for the confirmation."""
    finalists: Annotated[int, AllowedRange(1, 100)] = 4
    """Number of routes with the highest expected gain that are compared with the standard pass on the holdout."""
    n_empirical_best: Annotated[int, AllowedRange(0, 100)] = 3
    """Number of routes that are scored again in every round because of their own scores, whatever the Gaussian process
    predicts; the best of these is a finalist, too. The process misses good routes whose neighbours are bad."""
    epsilon_local: Annotated[float, AllowedRange(0, 1, symbol="ε_loc")] = 0.06
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: Annotated[float, AllowedRange(0, 1, symbol="ε_op")] = 0.02
    """Prior mass spread over all adds (``ε_op``)."""
    policy_samples: Annotated[int, AllowedRange(0, 100_000)] = 150
    """Number of programs sampled from the policy for every round's pool; with 0 it is not decoded either."""
    incumbents: Annotated[int, AllowedRange(0, 1000)] = 8
    """Number of best routes whose variants are in every round's pool."""
    kernel: str = "combined"
    """Covariance between routes: ``additive`` (effects of single layers add up), ``similarity`` (similar routes score
    alike), ``combined`` (both), or ``independent`` (no covariance)."""
    policy_temperature: Annotated[float, AllowedRange(0, exclusive=True)] = 0.02
    """A route whose expected gain is lower than the best by this much has 1/e of its weight in the policy."""
    policy_weight: Annotated[float, AllowedRange(0)] = 3.0
    """Weight of all promising routes together in the policy; the prior has weight 1."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_choice("kernel", self.kernel, KERNEL_NAMES)
        check_epsilons(self.epsilon_local, self.epsilon_operator)

    @property
    def k(self) -> int:
        """Size of the final set: the standard pass and the finalists."""
        return 1 + self.finalists + bool(self.n_empirical_best)

    def min_evaluations(self, examples: int, mixtures: int = 0) -> int:
        """Minimum evaluations (route × example) of a search over these examples; ``mixtures`` are finalists, too."""
        held = int(self.holdout * examples)
        return self.draws * (examples - held) + (self.k + mixtures) * held

    def count_affordable_examples(self, available: int, budget: int, mixtures: int = 0) -> int:
        """Number of the available examples that a budget pays for; too few are rejected."""
        used = min(available, budget * 1000 // self.min_evaluations(1000) + 1)
        while used and self.min_evaluations(used, mixtures) > budget:
            used -= 1
        if available < 3:
            raise SettingsError(
                f"{available} training examples are not allowed: the guided search needs 3 or more, to search and to"
                " confirm"
            )
        if used < 3:
            needed = self.min_evaluations(3, mixtures)
            raise SettingsError(
                f"budget = {budget} is not allowed: {self.draws} routes a round and a confirmation on 3 examples need"
                f" {needed} evaluations; give a larger budget, or fewer draws"
            )
        return used


@dataclass(frozen=True)
class ContrastiveSettings(GuidedSettings):
    """The settings of contrastive decoding; those of the guided search say on which examples it learns."""

    amateur: str = option(
        "", "A smaller model of the same tokenizer, subtracted from the model; for the method contrastive.", "Search"
    )
