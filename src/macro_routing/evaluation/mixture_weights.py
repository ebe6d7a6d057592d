"""Weights of a mixture, from the members' log-likelihoods of all choices of the same examples.

The probability of a choice is the softmax of the weighted sum of its log-likelihoods per byte; weights maximize the
likelihood of the correct choices with a ridge penalty. Members are added one by one, each time the one that lowers the
loss most; how many is decided by cross-validation on the same examples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from macro_routing.evaluation.outcomes import RouteEvaluation
from macro_routing.routes.mixture import Mixture, RouteOrMixture, to_simplest_form
from macro_routing.search.decision_settings import DecisionSettings

Scores = NDArray[np.float64]
"""``[route, example, choice]``: log-likelihoods per byte; NaN where an example has fewer choices."""
RIDGE = 1e-2
N_FOLDS = 5
_NEWTON_STEPS = 25
_FOLDS_STREAM = 31
_MIN_LIKELIHOOD = 1e-12
_WEIGHT_DIGITS = 3
"""Digits of a weight behind the point, so that it can be read; what is evaluated is the rounded mixture."""


@dataclass(frozen=True)
class FittedMembers:
    """Indices of the chosen routes, in the order in which they were added, and their weights."""

    indices: tuple[int, ...]
    weights: tuple[float, ...]
    loss: float
    """Mean negative log-likelihood of the correct choices, on the examples of the fit."""


def combine_scores(scores: Scores, weights: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted sum, ``[example, choice]``."""
    combined: NDArray[np.float64] = np.einsum("r,rnc->nc", np.asarray(weights, dtype=float), scores)
    return combined


def pick_choices(combined: NDArray[np.float64]) -> NDArray[np.int64]:
    """The best choice of each example."""
    return np.asarray(np.nanargmax(combined, axis=1))


def fit_weights(scores: Scores, answers: NDArray[np.int64], ridge: float = RIDGE) -> tuple[NDArray[np.float64], float]:
    """Weights of all routes of ``scores``, and the loss."""
    is_choice = ~np.isnan(scores[0])
    centred = np.where(is_choice, scores - np.nanmean(scores, axis=2, keepdims=True), 0.0)
    # In units of each route's own spread the penalty means the same for all.
    spread = np.sqrt((centred**2).sum(axis=(1, 2)) / is_choice.sum())
    features = centred / np.where(spread > 0, spread, 1.0)[:, None, None]
    count = len(answers)
    correct = np.zeros(is_choice.shape)
    correct[np.arange(count), answers] = 1.0
    weights = np.zeros(len(features))
    loss = np.inf
    for _ in range(_NEWTON_STEPS):
        probabilities = _softmax(combine_scores(features, weights), is_choice)
        new_loss = _negative_log_likelihoods(probabilities, answers).mean()
        if abs(loss - new_loss) < 1e-9:
            break
        loss = new_loss
        gradient = np.einsum("rnc,nc->r", features, correct - probabilities) / count - ridge * weights
        deviations = features - np.einsum("rnc,nc->rn", features, probabilities)[..., None]
        hessian = np.einsum("rnc,qnc,nc->rq", deviations, deviations, probabilities, optimize=True) / count
        weights = weights + np.linalg.solve(hessian + ridge * np.eye(len(weights)), gradient)
    return weights / np.where(spread > 0, spread, 1.0), float(loss)


def _softmax(values: NDArray[np.float64], is_choice: NDArray[np.bool_]) -> NDArray[np.float64]:
    shifted = np.where(is_choice, values, -np.inf)
    probabilities = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def _negative_log_likelihoods(probabilities: NDArray[np.float64], answers: NDArray[np.int64]) -> NDArray[np.float64]:
    correct = probabilities[np.arange(len(answers)), answers]
    return np.asarray(-np.log(np.maximum(correct, _MIN_LIKELIHOOD)))


IsAllowed = Callable[[Sequence[int]], bool]
"""Whether these routes may be members together."""


def add_members(
    scores: Scores,
    answers: NDArray[np.int64],
    max_members: int,
    ridge: float = RIDGE,
    is_allowed: IsAllowed = lambda _: True,
) -> list[FittedMembers]:
    """Mixtures of 1, 2, … ``max_members`` routes, each the one before with the route that lowers the loss most.

    The first route of ``scores`` is the standard pass, with which every mixture begins.
    """
    indices: list[int] = [0]
    weights, loss = fit_weights(scores[:1], answers, ridge)
    path = [FittedMembers((0,), tuple(weights.tolist()), loss)]
    while len(indices) < min(max_members, len(scores)):
        fits = {
            index: fit_weights(scores[[*indices, index]], answers, ridge)
            for index in range(len(scores))
            if index not in indices and is_allowed([*indices, index])
        }
        if not fits:
            break
        best = min(fits, key=lambda index: fits[index][1])
        indices.append(best)
        path.append(FittedMembers(tuple(indices), tuple(fits[best][0].tolist()), fits[best][1]))
    return path


def choose_members(  # noqa: PLR0913
    scores: Scores,
    answers: NDArray[np.int64],
    max_members: int,
    seed: int,
    ridge: float = RIDGE,
    is_allowed: IsAllowed = lambda _: True,
    groups: Sequence[int] | NDArray[np.int64] | None = None,
) -> list[FittedMembers]:
    """Mixtures of 1, 2, … routes, up to the number whose loss is lowest in cross-validation; fitted on all examples.

    Examples of the same group, if groups are given, are in the same fold.
    """
    groups = np.arange(len(answers)) if groups is None else np.asarray(groups)
    order = np.random.default_rng([seed, _FOLDS_STREAM]).permutation(np.unique(groups))
    losses = np.zeros(max_members)
    for fold in range(N_FOLDS):
        is_validation = np.isin(groups, order[fold::N_FOLDS])
        validation, rest = np.flatnonzero(is_validation), np.flatnonzero(~is_validation)
        if not len(validation):  # there are fewer groups than folds
            continue
        path = add_members(scores[:, rest], answers[rest], max_members, ridge, is_allowed)
        for count in range(max_members):
            members = path[min(count, len(path) - 1)]
            combined = combine_scores(scores[list(members.indices)][:, validation], members.weights)
            probabilities = _softmax(combined, ~np.isnan(combined))
            losses[count] += _negative_log_likelihoods(probabilities, answers[validation]).sum()
    return add_members(scores, answers, 1 + int(losses.argmin()), ridge, is_allowed)


Evaluations = Mapping[RouteOrMixture, RouteEvaluation]


@dataclass(frozen=True)
class ChoiceLabels:
    """What is known of the examples on which weights are fitted."""

    answers: Sequence[int]
    """Index of each example's correct choice."""
    sizes: Sequence[Sequence[int]]
    """What the log-likelihoods of each example's choices are divided by."""
    groups: Sequence[int] | None = None
    """The number of each example's group, see ``number_groups``."""


def fit_mixtures(
    evaluations: Evaluations, labels: ChoiceLabels, decision: DecisionSettings, seed: int
) -> list[RouteOrMixture]:
    """Mixtures of 2, 3, … of these routes, the first of which is the standard pass; empty where none helps.

    A mixture in which all but one weight round to 0 is the route of that weight.
    """
    routes, scores = collect_scores([*evaluations.values()], labels)
    if not routes:
        return []

    def is_affordable(indices: Sequence[int]) -> bool:
        return decision.is_affordable(make_mixture(routes, indices, [1.0] * len(indices)))

    assert decision.members is not None
    answers, groups = np.array(labels.answers), labels.groups
    path = choose_members(scores, answers, decision.members, seed, is_allowed=is_affordable, groups=groups)
    mixtures = [make_mixture(routes, members.indices, members.weights) for members in path[1:] if any(members.weights)]
    return [route for route in dict.fromkeys(map(to_simplest_form, mixtures)) if not route.is_standard]


def fit_mixture_of_all(evaluations: Evaluations, labels: ChoiceLabels) -> Mixture | None:
    """The mixture of all these routes, the first of which is the standard pass.

    None where that overflows, or where no route tells choices apart.
    """
    routes, scores = collect_scores([*evaluations.values()], labels)
    if not routes:
        return None
    weights, _ = fit_weights(scores, np.array(labels.answers))
    return make_mixture(routes, range(len(routes)), weights.tolist()) if weights.any() else None


def collect_scores(evaluations: Sequence[RouteEvaluation], labels: ChoiceLabels) -> tuple[list[RouteOrMixture], Scores]:
    """Routes and their scores; no routes where the first has none, which every mixture needs."""
    # Where numbers overflow on a route, some example has no log-likelihoods.
    complete = [one for one in evaluations if all(outcome.log_likelihoods for outcome in one.outcomes)]
    if not labels.answers or complete[:1] != evaluations[:1]:
        return [], np.empty((0, 0, 0))
    scores = np.full((len(complete), len(labels.answers), max(map(len, labels.sizes))), np.nan)
    for row, evaluation in zip(scores, complete, strict=True):
        for cells, outcome, sizes in zip(row, evaluation.outcomes, labels.sizes, strict=True):
            cells[: len(sizes)] = np.divide(outcome.log_likelihoods, sizes)
    return [evaluation.route for evaluation in complete], scores


def make_mixture(routes: Sequence[RouteOrMixture], indices: Sequence[int], weights: Sequence[float]) -> Mixture:
    """The normal form of these routes with these weights, rounded."""
    summed = Mixture.from_weights((routes[index], weight) for index, weight in zip(indices, weights, strict=True))
    rounded = [(member, round(member.weight, _WEIGHT_DIGITS)) for member in summed.members]
    return Mixture(tuple(replace(member, weight=weight) for member, weight in rounded if weight))
