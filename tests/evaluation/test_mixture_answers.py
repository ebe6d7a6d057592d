"""Mixtures where routes run: likelihood, text, the store, workers' messages and route files."""

import dataclasses
import json

import numpy as np
import pytest

from macro_routing.deploy.routed_checkpoint import write_routed_checkpoint
from macro_routing.engine.likelihood import score_choices
from macro_routing.errors import MacroError, NotationError, RouteError
from macro_routing.evaluation import Evaluator, ScoreStore
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import evaluate
from macro_routing.evaluation.mixture_weights import (
    ChoiceLabels,
    add_members,
    choose_members,
    combine_scores,
    fit_mixture_of_all,
    fit_mixtures,
    fit_weights,
    pick_choices,
)
from macro_routing.evaluation.model_answers import answer_examples, answer_with_every_route, build_choice_items
from macro_routing.evaluation.outcomes import ExampleOutcome, RouteEvaluation
from macro_routing.models import apply_route
from macro_routing.routes import Route, RouteFile, parse_route
from macro_routing.routes.mixture import Mixture, parse_mixture
from macro_routing.routes.notation import parse_route_or_mixture
from macro_routing.routes.route_file import parse_route_file
from macro_routing.search.decision_settings import DecisionSettings
from tests.models.tiny import LAYERS
from tests.runs.small import small_frozen, small_task

STANDARD = Route.standard(LAYERS)
MIXTURE = parse_mixture("1.6 [L0 RJ] - 0.6 [L0 L1 L3 RJ]", LAYERS)


@pytest.fixture(scope="module")
def frozen():
    return small_frozen()


@pytest.fixture(scope="module")
def task():
    return small_task()


def test_choices_are_compared_by_the_weighted_sum(frozen, task):
    examples = task.pools["train"][:40]
    items = build_choice_items(frozen, task, examples, by_letter=False)
    members = [score_choices(apply_route(frozen, route), items) for route in MIXTURE.routes]
    expected = []
    for index, example in enumerate(examples):
        total = sum(weight * np.array(scores[index]) for weight, scores in zip(MIXTURE.weights, members, strict=True))
        sizes = [len(choice.encode()) for choice in example.choices]
        expected.append(int(np.argmax(total / sizes)))
    outcomes = answer_with_every_route(frozen, [STANDARD, MIXTURE], task, examples, DecodingSettings("likelihood"))
    assert ["ABCD".index(outcome.prediction) for outcome in outcomes[MIXTURE]] == expected
    alone = answer_with_every_route(frozen, [STANDARD], task, examples, DecodingSettings("likelihood"))
    assert outcomes[STANDARD] == alone[STANDARD]
    assert [one.prediction for one in outcomes[MIXTURE]] != [one.prediction for one in outcomes[STANDARD]]


@pytest.mark.parametrize("mode", ["direct", "reasoning"])
def test_text_is_that_of_the_mixed_model(frozen, task, mode):
    examples = task.pools["train"][:10]
    decoding = DecodingSettings(mode, reasoning_budget=6, answer_budget=4)
    together = answer_with_every_route(frozen, [STANDARD, MIXTURE], task, examples, decoding)
    assert together[MIXTURE] == answer_examples(frozen, apply_route(frozen, MIXTURE), task, examples, decoding)
    assert together[STANDARD] == answer_examples(frozen, frozen.model, task, examples, decoding)


def test_without_the_question_choices_are_scored_by_themselves(frozen, task):
    examples = task.pools["train"][:40]
    alone = Mixture.from_route(parse_route("L0 L1 L3 RJ", LAYERS), with_question=False)
    mixture = Mixture.from_weights([(STANDARD, 1.6), (alone, -0.6)])
    decoding = DecodingSettings("likelihood")
    outcomes = answer_with_every_route(frozen, [STANDARD, mixture, alone], task, examples, decoding)
    blank = [dataclasses.replace(example, question="") for example in examples]
    by_question = score_choices(frozen.model, build_choice_items(frozen, task, examples, by_letter=False))
    by_themselves = score_choices(
        apply_route(frozen, alone.routes[0]), build_choice_items(frozen, task, blank, by_letter=False)
    )
    for index, (asked, unasked) in enumerate(zip(by_question, by_themselves, strict=True)):
        assert outcomes[alone][index].log_likelihoods == pytest.approx(unasked, abs=1e-4)
        expected = 1.6 * np.array(asked) - 0.6 * np.array(unasked)
        assert outcomes[mixture][index].log_likelihoods == pytest.approx(expected, abs=1e-3)
        assert outcomes[STANDARD][index].log_likelihoods == pytest.approx(asked, abs=1e-4)
    assert [one.prediction for one in outcomes[mixture]] != [one.prediction for one in outcomes[STANDARD]]


def test_without_the_question_nothing_is_written_or_deployed(frozen, task, tmp_path):
    mixture = parse_mixture("1.6 [L0 RJ] - 0.6 [L0 RJ | no question]", LAYERS)
    with pytest.raises(RouteError, match="only compares choices by likelihood"):
        answer_with_every_route(frozen, [mixture], task, task.pools["train"][:2], DecodingSettings("direct"))
    with pytest.raises(RouteError, match="only compares choices by likelihood"):
        apply_route(frozen, mixture)
    with pytest.raises(RouteError, match="only compares choices by likelihood"):
        write_routed_checkpoint(None, mixture, None, tmp_path / "out")
    assert parse_route_file(RouteFile(mixture, "tiny", "w", "n", "sums").to_json()).route == mixture


def test_outcomes_of_mixtures_are_stored(frozen, task, tmp_path):
    examples = task.pools["train"][:20]
    computed = []
    for _ in range(2):
        store = ScoreStore(tmp_path / "s.sqlite")
        counts = []
        evaluator = Evaluator(frozen, task, DecodingSettings("likelihood"), store, on_outcomes=counts.append)
        found = evaluator.evaluate([STANDARD, MIXTURE], examples)
        computed.append(sum(counts))
        store.close()
        assert set(found) == {STANDARD, MIXTURE}
    assert computed == [40, 0]


def test_a_text_is_evaluated_as_a_mixture(frozen, task):
    summary = evaluate(frozen, task, str(MIXTURE), examples=task.pools["train"][:20])
    assert summary.route == MIXTURE


@pytest.mark.parametrize("mode", ["direct", "reasoning", "likelihood"])
def test_bad_mixtures_are_rejected_in_one_line(frozen, task, mode):
    decoding = DecodingSettings(mode, reasoning_budget=2, answer_budget=2)
    bad = {
        "[L0 RJ] - [L0 L9 RJ]": "step 2 applies layer 9, but the model's 6 layers are numbered 0 to 5",
        "0 [L0 RJ]": "must be between 1e-06 and 1e\\+06 in size, not 0",
        "1e999 [L0 RJ]": "in size, not inf",
        "[L0 RJ] [L0 L2 RJ]": "is not a route of a mixture; write 1.5 ",
        " + ".join(["[L0 RJ]"] * 9): "a mixture may have at most 8 routes",
        "[L0 RJ] - [L0-L5]": "a mixture has each route once; add up the weights",
        parse_mixture("2 [L0 RJ] - [L0 L2 RJ]", 8): "is for a model of 8 layers, but small has 6",
        parse_mixture("2 [L0 RJ] - [L0 L2 RJ]", 4): "is for a model of 4 layers, but small has 6",
    }
    for route, message in bad.items():
        with pytest.raises(MacroError, match=message) as error:
            evaluate(frozen, task, route, examples=task.pools["train"][:2], decoding=decoding)
        assert "\n" not in str(error.value)


def test_a_route_file_holds_a_mixture():
    file = RouteFile(MIXTURE, "tiny", "w", "n", "sums")
    assert parse_route_file(file.to_json()).route == MIXTURE
    assert json.loads(file.to_json())["route"] == str(MIXTURE)
    single = RouteFile(Mixture.from_route(STANDARD), "tiny", "w", "n", "sums")
    assert parse_route_file(single.to_json()).route == STANDARD
    with pytest.raises(RouteError, match="a mixture of 2 routes, but a single route is needed here; give one of them"):
        parse_route(file.to_json(), LAYERS)
    assert parse_route_or_mixture("2 [L0 RJ]", LAYERS) == STANDARD


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            '"format": "macro-route/1"',
            '"format": 3',
            "the route file has the format 3; this version reads macro-route/1",
        ),
        ('"layers": 6', '"layers": 6, "route": "L0 RJ"', "the key 'route' is there twice"),
        ('"scores": {}', '"scores": {"test": NaN}', "NaN is not a number of JSON"),
        ('"recommendation": ""', '"recommendation": 5', "recommendation must be a string, not 5"),
        ('"revision": null', '"revision": 5', "revision must be a string, not 5"),
    ],
)
def test_an_edited_route_file_says_what_is_wrong(before, after, words):
    text = RouteFile(MIXTURE, "tiny", "w", "n", "sums").to_json()
    assert before in text
    with pytest.raises(NotationError, match=words):
        parse_route_or_mixture(text.replace(before, after), None)


def test_a_route_file_is_read_whatever_the_order_of_its_keys():
    values = json.loads(RouteFile(MIXTURE, "tiny", "w", "n", "sums", found_by={"note": "x" * 3000}).to_json())
    text = json.dumps(dict(reversed(values.items())))
    assert parse_route_or_mixture(text, None) == MIXTURE


# --- weights ------------------------------------------------------------------------------------------------------


def make_scores(rng, weights, n=4000, choices=4):
    """Scores of routes, and answers drawn from the softmax of their weighted sum."""
    scores = rng.normal(size=(len(weights), n, choices))
    scores[:, ::7, choices - 1] = np.nan
    total = np.einsum("r,rnc->nc", weights, scores)
    shares = np.exp(np.where(np.isnan(total), -np.inf, total))
    shares /= shares.sum(axis=1, keepdims=True)
    return scores, np.array([rng.choice(choices, p=row) for row in shares])


def test_weights_are_recovered():
    true = np.array([1.5, -0.8, 0.0])
    scores, answers = make_scores(np.random.default_rng(0), true)
    weights, loss = fit_weights(scores, answers, ridge=1e-6)
    assert weights == pytest.approx(true, abs=0.1)
    assert 0 < loss < np.log(4)


def test_members_are_added_while_they_lower_the_loss():
    scores, answers = make_scores(np.random.default_rng(1), np.array([1.0, 0.0, -1.0, 0.0, 0.3]))
    path = add_members(scores, answers, 3)
    assert [one.indices for one in path] == [(0,), (0, 2), (0, 2, 4)]
    assert path[0].loss > path[1].loss > path[2].loss
    accuracies = [
        np.mean(pick_choices(combine_scores(scores[list(one.indices)], one.weights)) == answers) for one in path
    ]
    assert accuracies[1] > accuracies[0] + 0.05


def test_the_number_of_members_is_chosen_by_cross_validation():
    rng = np.random.default_rng(2)
    scores, answers = make_scores(rng, np.array([1.5, 0.0, -1.2, 0.0, 0.0, 0.0]), n=600)
    path = choose_members(scores, answers, 4, seed=0)
    assert path[0].indices == (0,)
    assert path[1].indices == (0, 2)
    assert path == choose_members(scores, answers, 4, seed=0)
    noise = rng.normal(size=(12, 200, 4))
    noise[0, np.arange(200), answers[:200]] += 2.0
    assert [one.indices for one in choose_members(noise, answers[:200], 4, seed=0)] == [(0,)]


def test_examples_of_a_group_are_in_the_same_fold():
    """Copies of an example in two folds would confirm what was only fitted to them."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(12, 40, 4))
    answers = rng.integers(0, 4, 40)
    noise[0, np.arange(40), answers] += 1.0
    copies, same, groups = np.repeat(noise, 10, axis=1), np.repeat(answers, 10), np.repeat(np.arange(40), 10)
    assert len(choose_members(copies, same, 4, seed=0)) > 1
    assert len(choose_members(copies, same, 4, seed=0, groups=groups)) == 1
    few = choose_members(copies[:, :30], same[:30], 4, seed=0, groups=groups[:30])  # fewer groups than folds
    assert few[0].indices == (0,)


def make_evaluations(scores, answers, sizes):
    """Evaluations of the standard pass, a late skip, an early skip and a repeat with these scores per byte."""
    texts = ["L0 RJ", "L0-L3 L5 RJ", "L0 L2 RJ", "L0-L2 L2 RJ"]
    outcomes = [
        tuple(
            ExampleOutcome(bool(np.argmax(row) == answer), "A", log_likelihoods=tuple(row * size))
            for row, answer, size in zip(rows, answers, sizes, strict=True)
        )
        for rows in scores
    ]
    routes = [parse_route(text, LAYERS) for text in texts]
    return {route: RouteEvaluation(route, rows, 0) for route, rows in zip(routes, outcomes, strict=True)}


def test_mixtures_are_fitted_to_log_likelihoods_per_byte():
    rng = np.random.default_rng(3)
    true = np.array([1.5, -0.9, 0.0, 0.0])
    scores, answers = make_scores(rng, true, n=900, choices=3)
    scores[np.isnan(scores)] = -9.0
    sizes = rng.integers(1, 30, size=(900, 3))
    evaluations = make_evaluations(scores, answers, sizes)
    mixtures = fit_mixtures(
        evaluations, ChoiceLabels(answers.tolist(), sizes.tolist()), DecisionSettings(members=2), seed=0
    )
    (mixture,) = mixtures
    assert [str(route) for route in mixture.routes] == ["L0 RJ", "L0-L3 L5 RJ"]
    assert sum(mixture.weights) == pytest.approx(1)
    assert mixture.weights[1] / mixture.weights[0] == pytest.approx(-0.6, abs=0.1)


def test_a_route_on_which_numbers_overflow_is_no_member():
    scores, answers = make_scores(np.random.default_rng(5), np.array([1.5, -0.9, 0.0, 0.0]), n=300, choices=3)
    scores[np.isnan(scores)] = -9.0
    sizes = np.ones((300, 3), int)
    evaluations = make_evaluations(scores, answers, sizes)
    standard, skip, *_ = evaluations

    def fit_without(route):
        outcomes = (ExampleOutcome(correct=False, prediction=""), *evaluations[route].outcomes[1:])
        changed = evaluations | {route: RouteEvaluation(route, outcomes, 0)}
        return fit_mixtures(
            changed, ChoiceLabels(answers.tolist(), sizes.tolist()), DecisionSettings(members=3), seed=0
        )

    assert not any(skip in mixture.routes for mixture in fit_without(skip))
    assert fit_without(standard) == []


def test_a_maximum_cost_excludes_members():
    scores, answers = make_scores(np.random.default_rng(4), np.array([1.5, 0.1, -1.2, 0.1]), n=900, choices=3)
    scores[np.isnan(scores)] = -9.0
    sizes = np.ones((900, 3), int)
    evaluations = make_evaluations(scores, answers, sizes)

    def fit(**settings):
        return fit_mixtures(
            evaluations, ChoiceLabels(answers.tolist(), sizes.tolist()), DecisionSettings(**settings), seed=0
        )

    assert "L0 L2 RJ" in map(str, fit(members=3)[0].routes)  # the early skip shares one layer only
    limited = fit(members=3, max_cost=1.2)
    assert all(mixture.length <= 1.2 * LAYERS for mixture in limited)
    assert not any("L0 L2 RJ" in map(str, mixture.routes) for mixture in limited)
    assert fit(members=3, max_cost=1.0) == []


def test_a_prompt_that_is_empty_without_the_question_is_the_token_that_begins_a_text():
    frozen, task = small_frozen(), small_task()
    question_alone = dataclasses.replace(task, prompts=dataclasses.replace(task.prompts, likelihood="{question}"))
    examples = task.pools["train"][:2]
    items = build_choice_items(frozen, question_alone, examples, by_letter=False, with_question=False)
    tokenizer = frozen.tokenizer
    first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    assert {item.prompt for item in items} == {(first,)}


def test_weights_that_are_all_zero_give_no_mixture():
    scores, answers = make_scores(np.random.default_rng(6), np.array([1.0, 0.0, 0.0, 0.0]), n=60, choices=3)
    flat, sizes = np.zeros_like(scores[:, :, :3]), np.ones((60, 3), int)
    evaluations = make_evaluations(flat, answers, sizes)
    labels = ChoiceLabels(answers.tolist(), sizes.tolist())
    assert fit_mixtures(evaluations, labels, DecisionSettings(members=3), seed=0) == []
    assert fit_mixture_of_all(evaluations, labels) is None


def test_a_mixture_that_rounds_to_one_route_is_that_route():
    scores, answers = make_scores(np.random.default_rng(7), np.array([0.0, 1.5, 0.0, 0.0]), n=900, choices=3)
    scores[np.isnan(scores)] = -9.0
    sizes = np.ones((900, 3), int)
    mixtures = fit_mixtures(
        make_evaluations(scores, answers, sizes),
        ChoiceLabels(answers.tolist(), sizes.tolist()),
        DecisionSettings(members=4),
        seed=0,
    )
    assert len(set(mixtures)) == len(mixtures)
    assert not any(isinstance(one, Mixture) and one.is_single for one in mixtures)


def test_variants_of_one_question_are_in_one_fold_when_a_search_fits():
    """Copies of the same noise seem to help unless they are held out together."""
    rng = np.random.default_rng(1)
    scores, answers = rng.normal(size=(4, 20, 3)), rng.integers(0, 3, 20)
    scores[0, np.arange(20), answers] += 1.0
    copies, same = np.repeat(scores, 20, axis=1), np.repeat(answers, 20)
    sizes = np.ones((400, 3), int)
    evaluations = make_evaluations(copies, same, sizes)

    def count(groups):
        labels = ChoiceLabels(same.tolist(), sizes.tolist(), groups)
        return len(fit_mixtures(evaluations, labels, DecisionSettings(members=4), seed=0))

    assert count(np.repeat(np.arange(20), 20).tolist()) == 0 < count(None)


def test_one_model_of_a_mixture_does_not_compare_choices_by_itself(frozen):
    mixture = parse_mixture("1.5 [L0 RJ] - 0.5 [L0 L2 RJ]", LAYERS)
    task = small_task()
    examples = task.pools["test"][:2]
    with pytest.raises(RouteError, match="this function takes a single route"):
        answer_examples(frozen, apply_route(frozen, mixture), task, examples, DecodingSettings("likelihood"))
