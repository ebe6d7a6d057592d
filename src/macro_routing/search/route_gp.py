"""A Gaussian process over routes: predicts the gains of routes from the scores of others.

A gain over the standard pass is a sum of three parts: effects of single layers and jumps (neighbouring layers have
similar effects); a part shared by routes with a small edit distance; and a penalty per edited step. The size of each
part is a kernel parameter, fitted by the marginal likelihood. The standard pass has gain zero.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from macro_routing.routes.route import Route
from macro_routing.search.blas_threads import with_one_blas_thread
from macro_routing.search.empirical_scores import subsample_draws_keeping_best
from macro_routing.search.guided_settings import KERNEL_NAMES
from macro_routing.search.route_features import Floats, RouteCovarianceInputs, RouteFeatures
from macro_routing.search.searcher import Draw, Score

_LOG_PRIOR_SCALE = 1.2
"""Standard deviation of the logarithm of a parameter under its prior, which is centred on the default."""
_STANDARD_SCALE = 0.5
"""Prior standard deviation of the standard pass's accuracy around the mean of all scores."""
_EXAMPLE_LENGTH_SCALE = 6.0
"""Over how many edited steps two routes are correct on the same examples."""
_PSEUDO_EXAMPLES = 40
"""Pseudo-examples at the mean accuracy that a route's own are mixed with, to estimate the variance of its scores."""
_JITTER = 1e-6
_MAX_FIT_ROWS = 600
"""Maximum number of scores for fitting parameters: each of many evaluations takes time cubic in it."""


@dataclass(frozen=True)
class GPKernelParameters:
    """Standard deviations of the parts of a gain; accuracies are fractions. The defaults fit recorded landscapes."""

    layer_effect: float = 0.02
    """Effect of one application of a layer more or less."""
    jump_effect: float = 0.01
    """Effect of a jump from one layer to another."""
    similarity: float = 0.01
    """Part shared by similar routes."""
    length_scale: float = 4.0
    """Edit distance over which that part is shared."""
    nugget: float = 0.001
    """Part of a single route, shared by none."""
    edit_penalty: float = 0.015
    """Loss per edited step."""
    round_effect: float = 0.03
    """Difference in difficulty between the examples of different rounds."""
    example_effect: float = 0.2
    """How much a route's effect differs between examples, in a way that similar routes share."""
    noise: float = 0.4
    """Remaining variance of a score, relative to the binomial variance."""


KERNELS = {
    "combined": GPKernelParameters(),
    "additive": GPKernelParameters(similarity=0.0),
    "similarity": GPKernelParameters(layer_effect=0.0, jump_effect=0.0),
    "independent": GPKernelParameters(
        layer_effect=0.0, jump_effect=0.0, similarity=0.0, nugget=0.03, edit_penalty=0.0, example_effect=0.0
    ),
}
"""Parameters that fitting starts from, by kernel; a parameter of 0 stays 0."""
assert tuple(KERNELS) == KERNEL_NAMES

_START_PARAMETERS = (GPKernelParameters(), GPKernelParameters(example_effect=0.05, noise=1.0))
"""Parameters that fitting may also start from: those of recorded landscapes, where similar routes fail on the same
examples, and independent noise. Mistaking the second for the first makes the search certain too early."""

_SEARCH_FACTORS = {
    "layer_effect": (0.5, 2.0),
    "jump_effect": (0.5, 2.0),
    "similarity": (0.5, 2.0),
    "length_scale": (0.6, 1.6),
    "nugget": (0.5, 2.0),
    "edit_penalty": (0.4, 2.5),
    "round_effect": (0.5, 2.0),
    "example_effect": (0.5, 2.0),
    "noise": (0.7, 1.4),
}
_MIN_LENGTH_SCALE = 2.0
"""With a shorter one the similarity part could not be told from noise."""
_NOISE_RANGE = (0.05, 1.2)
"""The noise is below the binomial variance if routes fail on the same examples, and hardly ever above."""


@dataclass(frozen=True, eq=False)
class ObservedAccuracies:
    """Observed accuracies; a row is a route on the examples of a round."""

    routes: RouteFeatures
    """Different routes, the standard pass among them."""
    route_index: NDArray[np.int64]
    """Index of each row's route."""
    round_index: NDArray[np.int64]
    """Number of each row's round."""
    accuracy: Floats
    examples: Floats
    """Number of examples of each row."""

    @classmethod
    def from_scored_draws(cls, draws: Sequence[Draw], standard: Route) -> "ObservedAccuracies":
        """The scores of draws, or of a part of them if there are too many; the standard pass is route 0."""
        scored = [
            (draw, draw.outcome) for draw in subsample_draws_keeping_best(draws) if isinstance(draw.outcome, Score)
        ]
        routes = list(dict.fromkeys([standard, *(draw.proposal.route for draw, _ in scored)]))
        index = {route: number for number, route in enumerate(routes)}
        return cls(
            RouteFeatures.from_routes(routes),
            np.array([index[draw.proposal.route] for draw, _ in scored]),
            np.array([draw.round for draw, _ in scored]),
            np.array([outcome.accuracy for _, outcome in scored]),
            np.array([outcome.total for _, outcome in scored], dtype=np.float64),
        )

    @cached_property
    def binomial_variance(self) -> Floats:
        """Variance of each row if its examples were independent, with the route's smoothed accuracy."""
        correct = np.bincount(self.route_index, self.accuracy * self.examples, len(self.routes))
        seen = np.bincount(self.route_index, self.examples, len(self.routes))
        mean = correct.sum() / seen.sum()
        smoothed = np.clip((correct + _PSEUDO_EXAMPLES * mean) / (seen + _PSEUDO_EXAMPLES), 0.03, 0.97)[
            self.route_index
        ]
        return np.asarray(smoothed * (1 - smoothed) / self.examples)

    @cached_property
    def kernel_terms(self) -> RouteCovarianceInputs:
        """Terms of the covariance between the routes."""
        return self.routes.compute_kernel_terms(self.routes)

    @cached_property
    def mean_centred_accuracies(self) -> Floats:
        """Accuracies minus their mean."""
        return np.asarray(self.accuracy - np.average(self.accuracy, weights=self.examples))

    @cached_property
    def _same_round_matrix(self) -> Floats:
        return np.asarray(self.round_index[:, None] == self.round_index, np.float64)

    @cached_property
    def _shared_examples_covariance(self) -> Floats:
        """Covariance of rows whose routes are correct on the same examples, for an ``example_effect`` of 1."""
        similarity = self._expand_to_rows(self.kernel_terms.compute_similarity_kernel(_EXAMPLE_LENGTH_SCALE))
        return np.asarray(self._same_round_matrix * similarity / (2 * np.sqrt(self.examples[:, None] * self.examples)))

    def _expand_to_rows(self, covariance: Floats) -> Floats:
        """Covariance of the rows from that of their routes."""
        return covariance.take(self.route_index, axis=0).take(self.route_index, axis=1)

    def keep_rows_of_every_nth_route(self, max_rows: int) -> "ObservedAccuracies":
        """About ``max_rows`` rows: those of every second, third, … route, independent of the scores."""
        if len(self.route_index) <= max_rows:
            return self
        stride = -(-len(self.route_index) // max_rows)
        kept = np.flatnonzero(self.route_index % stride == 0)
        routes = self.routes[np.arange(0, len(self.routes), stride)]
        route_index = self.route_index[kept] // stride
        return ObservedAccuracies(routes, route_index, self.round_index[kept], self.accuracy[kept], self.examples[kept])

    def covariance(self, parameters: GPKernelParameters) -> Floats:
        """Covariance of the rows."""
        covariance = self._expand_to_rows(_route_covariance(parameters, self.kernel_terms))
        covariance += _STANDARD_SCALE**2
        covariance += parameters.round_effect**2 * self._same_round_matrix
        covariance += parameters.example_effect**2 * self._shared_examples_covariance
        covariance[np.diag_indices(len(covariance))] += parameters.noise * self.binomial_variance
        return covariance


@dataclass(frozen=True, eq=False)
class RouteGP:
    """The posterior of the process, given the scores of some routes."""

    known: RouteFeatures
    parameters: GPKernelParameters
    _precision: Floats = field(repr=False)
    _weights: Floats = field(repr=False)

    @classmethod
    @with_one_blas_thread
    def fit(cls, scores: ObservedAccuracies, *, start: GPKernelParameters, sweeps: int = 1) -> "RouteGP":
        """Compute the posterior; parameters are fitted from ``start``, or kept as they are without ``sweeps``."""
        parameters = (
            fit_kernel_parameters(scores.keep_rows_of_every_nth_route(_MAX_FIT_ROWS), start, sweeps)
            if sweeps
            else start
        )
        inverse = np.linalg.inv(scores.covariance(parameters))
        # Rows of one route are added up: predictions are about routes.
        order = np.argsort(scores.route_index, kind="stable")
        first = np.flatnonzero(np.diff(scores.route_index[order], prepend=-1))
        known = scores.routes[scores.route_index[order][first]]
        precision = np.add.reduceat(np.add.reduceat(inverse[order[:, None], order], first, axis=0), first, axis=1)
        return cls(
            known, parameters, precision, np.add.reduceat((inverse @ scores.mean_centred_accuracies)[order], first)
        )

    @cached_property
    def scored_route_expected_gains(self) -> dict[Route, float]:
        """Expected gains of the scored routes other than the standard pass, highest first."""
        gains = self.predict_mean(self.known)
        ranked = [(self.known.routes[index], float(gains[index])) for index in np.argsort(-gains, kind="stable")]
        return {route: gain for route, gain in ranked if not route.is_standard}

    @with_one_blas_thread
    def predict_mean(self, routes: RouteFeatures) -> Floats:
        """Expected gains."""
        return np.asarray(_route_covariance(self.parameters, self.known.compute_kernel_terms(routes)).T @ self._weights)

    @with_one_blas_thread
    def predict_gain_covariance(self, routes: RouteFeatures) -> tuple[Floats, Floats]:
        """Expected gains, and their covariance."""
        cross = _route_covariance(self.parameters, self.known.compute_kernel_terms(routes))
        prior = _route_covariance(self.parameters, routes.compute_kernel_terms(routes))
        return np.asarray(cross.T @ self._weights), np.asarray(prior - cross.T @ self._precision @ cross)


def _route_covariance(parameters: GPKernelParameters, terms: RouteCovarianceInputs) -> Floats:
    covariance = parameters.layer_effect**2 * terms.shared_layers
    covariance += parameters.jump_effect**2 * terms.shared_jumps
    covariance += parameters.similarity**2 * terms.compute_similarity_kernel(parameters.length_scale)
    covariance += parameters.nugget**2 * terms.same_route
    covariance += np.outer(parameters.edit_penalty * terms.row_edits, parameters.edit_penalty * terms.column_edits)
    return covariance


def fit_kernel_parameters(scores: ObservedAccuracies, start: GPKernelParameters, sweeps: int) -> GPKernelParameters:
    """Maximise the marginal likelihood; each sweep tries every parameter larger and smaller.

    The search starts from ``start`` or from typical parameters, whichever explain the scores better: parameters that
    have shrunk while nothing was found would take long to grow again.
    """
    parameters, best = start, log_marginal_likelihood(start, scores)
    for typical in _START_PARAMETERS:
        tried = replace(typical, **{name: 0.0 for name in _SEARCH_FACTORS if getattr(start, name) == 0})
        if (likelihood := log_marginal_likelihood(tried, scores)) > best:
            parameters, best = tried, likelihood
    for _ in range(sweeps):
        for name, factors in _SEARCH_FACTORS.items():
            for factor in factors:
                tried = replace(parameters, **{name: getattr(parameters, name) * factor})
                if tried == parameters or not _are_gp_kernel_parameters_in_range(tried):
                    continue
                if (likelihood := log_marginal_likelihood(tried, scores)) > best:
                    parameters, best = tried, likelihood
                    break
    return parameters


def _are_gp_kernel_parameters_in_range(parameters: GPKernelParameters) -> bool:
    smallest, largest = _NOISE_RANGE
    return parameters.length_scale >= _MIN_LENGTH_SCALE and smallest <= parameters.noise <= largest


def log_marginal_likelihood(parameters: GPKernelParameters, scores: ObservedAccuracies) -> float:
    """Log marginal likelihood of the scores plus log prior of the parameters; -inf for a singular covariance."""
    count = len(scores.route_index)
    # One more row and column, the scores: its part of the Cholesky factor is what a triangular solve would give.
    bordered = np.full((count + 1, count + 1), 1e12)
    bordered[:count, :count] = scores.covariance(parameters)
    bordered[count, :count] = bordered[:count, count] = scores.mean_centred_accuracies
    try:
        root = np.linalg.cholesky(bordered)
    except np.linalg.LinAlgError:
        return -math.inf
    fit = root[count, :count] @ root[count, :count]
    defaults = GPKernelParameters()
    deviation = sum(
        math.log(getattr(parameters, name) / getattr(defaults, name)) ** 2
        for name in _SEARCH_FACTORS
        if getattr(parameters, name) > 0
    )
    return float(-0.5 * fit - np.log(np.diag(root)[:count]).sum() - deviation / (2 * _LOG_PRIOR_SCALE**2))


@with_one_blas_thread
def thompson_sample(  # noqa: PLR0913
    mean: Floats,
    covariance: Floats,
    samples: int,
    wanted: int,
    rng: np.random.Generator,
    compute_utility: Callable[[Floats], Floats] = lambda gains: gains,
) -> list[int]:
    """Indices of different routes, each the best in a sample from the posterior.

    ``compute_utility`` says what is best, from gains by route and sample. If the samples have fewer than ``wanted``
    different best routes, those with the highest utility of mean plus standard deviation follow.
    """
    root = np.linalg.cholesky(covariance + _JITTER * np.eye(len(mean)))
    sampled = mean[:, None] + root @ rng.standard_normal((len(mean), samples))
    chosen = list(dict.fromkeys(compute_utility(sampled).argmax(axis=0).tolist()))[:wanted]
    upper_bound = compute_utility((mean + np.sqrt(np.clip(np.diag(covariance), 0, None)))[:, None])[:, 0]
    taken = set(chosen)
    rest = [index for index in np.argsort(-upper_bound, kind="stable").tolist() if index not in taken]
    return chosen + rest[: wanted - len(chosen)]
