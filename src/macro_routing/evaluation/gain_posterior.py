"""The true gain of a route, given examples that the search never saw: adaptive shrinkage.

The prior is a scale mixture of normal distributions around zero. Its weights were learned from the finalists of
searches on recorded landscapes (``experiments.decisions``). Most finalists gain nothing, so a small measured gain is
mostly noise and shrinks towards zero; a large one stays. What the search itself expects has no part in it: it is the
highest of hundreds of estimates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

PRIOR_SCALES = (0.005, 0.02, 0.06, 0.15)
"""Standard deviations of the prior's components, as fractions of the examples."""
PRIOR_WEIGHTS = (0.41, 0.32, 0.18, 0.09)
_PSEUDO_COUNT = 2
"""Added to the discordant examples in the variance, so that a few examples without any difference are not certainty."""


@dataclass(frozen=True, eq=False)
class GainPosterior:
    """What is known about the true gain: a mixture of normal distributions, as fractions of the examples."""

    weights: NDArray[np.float64]
    """Weights of the components; they sum to 1."""
    means: NDArray[np.float64]
    """Means of the components."""
    variances: NDArray[np.float64]
    """Variances of the components."""

    @classmethod
    def from_counts(
        cls, fixed: int, broken: int, n: int, prior_weights: Sequence[float] = PRIOR_WEIGHTS
    ) -> "GainPosterior":
        """The posterior after ``n`` held-out examples, of which the route fixed some and broke some."""
        return cls.from_sums(fixed - broken, fixed + broken, n, prior_weights)

    @classmethod
    def from_sums(
        cls, differences: float, squares: float, n: int, prior_weights: Sequence[float] = PRIOR_WEIGHTS
    ) -> "GainPosterior":
        """The posterior after ``n`` held-out examples, by the sum of the differences and that of their squares."""
        prior = np.array(PRIOR_SCALES) ** 2
        gain, variance = differences / max(n, 1), (squares + _PSEUDO_COUNT) / max(n, 1) ** 2
        total = prior + variance
        evidence = np.array(prior_weights) * np.exp(-(gain**2) / (2 * total)) / np.sqrt(total)
        return cls(evidence / evidence.sum(), prior / total * gain, prior / total * variance)

    @property
    def expected_gain(self) -> float:
        """The expected gain."""
        return float(self.weights @ self.means)

    @property
    def gain_standard_deviation(self) -> float:
        """Standard deviation of the gain."""
        return float(np.sqrt(self.weights @ (self.variances + self.means**2) - self.expected_gain**2))

    def probability_above(self, gain: float) -> float:
        """Probability that the true gain exceeds ``gain``."""
        return float(self.weights @ scipy.special.ndtr((self.means - gain) / np.sqrt(self.variances)))

    def measured_gain_cdf(self, gain: float, variance: float) -> float:
        """Probability that the gain measured on other examples is at most ``gain``; ``variance`` is its noise."""
        return float(self.weights @ scipy.special.ndtr((gain - self.means) / np.sqrt(self.variances + variance)))
