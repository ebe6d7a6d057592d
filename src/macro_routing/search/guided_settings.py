"""The settings of the guided search, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from macro_routing.search.policy import check_epsilons
from macro_routing.search.route_gp import KERNELS
from macro_routing.settings import check_choice, check_integer, check_number


@dataclass(frozen=True)
class GuidedSettings:
    """The settings of the guided search."""

    rounds: int = 10
    """Rounds, each with its own share of the training examples."""
    draws: int = 70
    """Different routes per round, the standard pass among them; more where the budget pays for it."""
    holdout: float = 0.5
    """Share of the training examples that are kept for the confirmation."""
    finalists: int = 4
    """Routes of which the model expects most that meet the standard pass there."""
    n_empirical_best: int = 3
    """Routes that are scored again in every round because of their own scores alone, whatever the model thinks of them;
    the best of these is a finalist, too. The model expects no lonely peaks."""
    max_error_probability: float = 0.1
    """A finalist is chosen when, by all that is known, it is no better than the standard pass with at most this
    probability."""
    epsilon_local: float = 0.06
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: float = 0.02
    """Prior mass spread over all adds (``ε_op``)."""
    policy_samples: int = 150
    """Programs drawn from the policy per round, for the model to choose from; with 0 it is not decoded either."""
    incumbents: int = 8
    """Best routes whose edits the model may choose in every round."""
    kernel: str = "combined"
    """Covariance between routes: ``additive`` (effects of single layers add up), ``similarity`` (similar routes score
    alike), ``combined`` (both), or ``independent`` (no covariance)."""
    policy_temperature: float = 0.02
    """A route expected to be worse than the best by this much weighs e times less in the policy."""
    policy_weight: float = 3.0
    """Weight of all routes together in the policy, where the prior weighs 1."""

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        check_integer("rounds", self.rounds, minimum=1)
        check_integer("draws", self.draws, minimum=3)
        check_integer("finalists", self.finalists, minimum=1, maximum=100)
        check_integer("n_empirical_best", self.n_empirical_best, minimum=0, maximum=100)
        check_integer("policy_samples", self.policy_samples, minimum=0, maximum=100_000)
        check_integer("incumbents", self.incumbents, minimum=0, maximum=1000)
        check_choice("kernel", self.kernel, tuple(KERNELS))
        check_number("holdout", self.holdout, minimum=0, maximum=0.9)
        check_number("max_error_probability", self.max_error_probability, minimum=0, maximum=1, exclusive=True)
        check_number("policy_temperature", self.policy_temperature, minimum=0, exclusive=True)
        check_number("policy_weight", self.policy_weight, minimum=0)
        check_epsilons(self.epsilon_local, self.epsilon_operator)

    @property
    def k(self) -> int:
        """Size of the final set: the standard pass and the finalists."""
        return 1 + self.finalists + bool(self.n_empirical_best)

    def cost(self, examples: int) -> int:
        """Outcomes that a search over so many examples asks for at least."""
        held = int(self.holdout * examples)
        return self.draws * (examples - held) + self.k * held
