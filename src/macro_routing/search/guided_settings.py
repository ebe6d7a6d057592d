"""The settings of the guided search, and the evaluations they need."""

from dataclasses import dataclass

from macro_routing.search.policy import check_epsilons
from macro_routing.search.route_gp import KERNELS
from macro_routing.settings import Range, check_choice, check_fields, option


@dataclass(frozen=True)
class GuidedSettings:
    """The settings of the guided search."""

    rounds: int = 10
    """Rounds, each with its own share of the training examples."""
    draws: int = 70
    """Different routes per round, the standard pass among them; more if the budget pays for it."""
    holdout: float = 0.5
    """Share of the training examples kept for the confirmation."""
    finalists: int = 4
    """Number of routes with the highest expected gain that are compared with the standard pass on the holdout."""
    n_empirical_best: int = 3
    """Number of routes that are scored again in every round because of their own scores, whatever the Gaussian process
    predicts; the best of these is a finalist, too. The process misses good routes whose neighbours are bad."""
    max_error_probability: float = option(
        0.1, "Maximum probability that the chosen route is no better; in the guided search.", "Search"
    )
    """A finalist is chosen if the probability that it is no better than the standard pass is at most this."""
    epsilon_local: float = 0.06
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: float = 0.02
    """Prior mass spread over all adds (``ε_op``)."""
    policy_samples: int = 150
    """Number of programs sampled from the policy for every round's pool; with 0 it is not decoded either."""
    incumbents: int = 8
    """Number of best routes whose variants are in every round's pool."""
    kernel: str = "combined"
    """Covariance between routes: ``additive`` (effects of single layers add up), ``similarity`` (similar routes score
    alike), ``combined`` (both), or ``independent`` (no covariance)."""
    policy_temperature: float = 0.02
    """A route whose expected gain is lower than the best by this much has 1/e of its weight in the policy."""
    policy_weight: float = 3.0
    """Weight of all promising routes together in the policy; the prior has weight 1."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        check_fields(
            self,
            rounds=Range(1),
            draws=Range(3),
            holdout=Range(0, 0.9),
            finalists=Range(1, 100),
            n_empirical_best=Range(0, 100),
            max_error_probability=Range(0, 1, exclusive=True),
            epsilon_local=Range(0, 1, symbol="ε_loc"),
            epsilon_operator=Range(0, 1, symbol="ε_op"),
            policy_samples=Range(0, 100_000),
            incumbents=Range(0, 1000),
            policy_temperature=Range(0, exclusive=True),
            policy_weight=Range(0),
        )
        check_choice("kernel", self.kernel, tuple(KERNELS))
        check_epsilons(self.epsilon_local, self.epsilon_operator)

    @property
    def k(self) -> int:
        """Size of the final set: the standard pass and the finalists."""
        return 1 + self.finalists + bool(self.n_empirical_best)

    def min_evaluations(self, examples: int) -> int:
        """Minimum number of evaluations (route × example) of a search over ``examples`` examples."""
        held = int(self.holdout * examples)
        return self.draws * (examples - held) + self.k * held
