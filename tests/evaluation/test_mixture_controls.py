"""Each control of mixtures against a plain form: one model after the other, no shared layers, every choice by hand."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from macro_routing.engine.likelihood import score_choices
from macro_routing.evaluation import Evaluator
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.mixture_controls import find_control_mixture
from macro_routing.evaluation.mixture_weights import RIDGE, ChoiceLabels
from macro_routing.evaluation.model_answers import build_choice_items
from macro_routing.models import apply_route
from macro_routing.routes import Route
from macro_routing.routes.mixture import to_mixture
from macro_routing.search.mixture_controls import list_control_sources
from tests.models.tiny import LAYERS
from tests.runs.small import small_frozen, small_task

STANDARD = Route.standard(LAYERS)
N = 60


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


@pytest.fixture(scope="module")
def task():
    return small_task()


@pytest.fixture(scope="module")
def find(frozen, task):
    """The control's mixture on the first training examples."""
    examples = task.pools["train"][:N]
    sizes = [[len(choice.encode()) for choice in example.choices] for example in examples]
    labels = ChoiceLabels([example.correct_choice for example in examples], sizes)

    def find_mixture(control):
        evaluator = Evaluator(frozen, task, DecodingSettings("likelihood"))
        evaluations = evaluator.evaluate(list_control_sources(control, LAYERS), examples)
        return find_control_mixture(control, evaluations, lambda: labels)

    return find_mixture


@pytest.fixture(scope="module")
def plain(frozen, task):
    """Log-likelihoods per byte ``[example, choice]`` of one route, by a model of its own."""
    examples = task.pools["train"][:N]
    items = build_choice_items(frozen, task, examples, by_letter=False)
    blank = build_choice_items(frozen, task, examples, by_letter=False, with_question=False)
    sizes = np.array([[len(choice.encode()) for choice in example.choices] for example in examples])

    def score(route, *, with_question=True):
        return np.array(score_choices(apply_route(frozen, route), items if with_question else blank)) / sizes

    return score


@pytest.fixture(scope="module")
def answers(task):
    return np.array([example.correct_choice for example in task.pools["train"][:N]])


def route(steps):
    return Route.from_layers(steps, LAYERS)


def accuracy(scores, answers):
    return np.mean(scores.argmax(axis=1) == answers)


def find_best_contrast(weaker, plain, answers):
    """The first route with the highest accuracy when half of it is taken from one and a half standard passes."""
    accuracies = [accuracy(1.5 * plain(STANDARD) - 0.5 * plain(one), answers) for one in weaker]
    return weaker[int(np.argmax(accuracies))]


def test_dola_takes_away_the_best_early_exit(find, plain, answers):
    exits = [route(range(end)) for end in range(LAYERS // 2 + 1, LAYERS, 2)]
    found = to_mixture(find("dola"))
    assert found.weights == (1.5, -0.5)
    assert found.routes == (STANDARD, find_best_contrast(exits, plain, answers))


def test_skip_layer_cd_takes_away_the_best_pass_without_a_block(find, plain, answers):
    skips = [route([layer for layer in range(LAYERS) if layer != start]) for start in range(1, LAYERS // 2)]
    found = to_mixture(find("skip-layer-cd"))
    assert found.weights == (1.5, -0.5)
    assert found.routes == (STANDARD, find_best_contrast(skips, plain, answers))


def test_the_average_is_of_the_three_best_routes(find, plain, answers):
    dropped = [route([other for other in range(LAYERS) if other != layer]) for layer in range(LAYERS)]
    twice = [route(sorted([*range(LAYERS), layer])) for layer in range(LAYERS)]
    ranked = sorted([STANDARD, *dropped, *twice], key=lambda one: -accuracy(plain(one), answers))
    found = to_mixture(find("route-average"))
    assert set(found.routes) == set(ranked[:3])
    assert len(set(found.weights)) == 1


def fit_by_scipy(features, answers):
    """Weights that minimize the loss with a ridge penalty, each feature in units of its spread."""
    centred = features - features.mean(axis=2, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=(1, 2)))[:, None, None]
    centred = centred / spread

    def loss(weights):
        logits = np.einsum("r,rnc->nc", weights, centred)
        log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return -log_probabilities[np.arange(len(answers)), answers].mean() + RIDGE / 2 * (weights**2).sum()

    result = minimize(loss, np.zeros(len(features)), tol=1e-10)
    return result.x / spread[:, 0, 0], result.fun


def test_pmi_has_the_fitted_weights_of_a_choice_with_and_without_its_question(find, plain, answers):
    weights, _ = fit_by_scipy(np.stack([plain(STANDARD), plain(STANDARD, with_question=False)]), answers)
    found = find("pmi")
    by_question = {member.with_question: member.weight for member in found.members}
    assert found.routes == (STANDARD, STANDARD)
    assert by_question[False] / by_question[True] == pytest.approx(weights[1] / weights[0], rel=0.02)


def test_read_outs_are_added_while_they_lower_the_loss(find, plain, answers):
    exits = [route(range(end)) for end in range(2, LAYERS, 2)]
    found = to_mixture(find("readouts"))
    others = [one for one in found.routes if one != STANDARD]
    assert set(others) <= set(exits)
    if others:  # the first that was added is the one that lowers the loss most
        losses = {one: fit_by_scipy(np.stack([plain(STANDARD), plain(one)]), answers)[1] for one in exits}
        assert min(losses, key=losses.get) in others
        subsets = itertools.combinations(exits, len(others))
        _, loss = fit_by_scipy(np.stack([plain(one) for one in (STANDARD, *others)]), answers)
        assert loss <= max(
            fit_by_scipy(np.stack([plain(x) for x in (STANDARD, *part)]), answers)[1] for part in subsets
        )
