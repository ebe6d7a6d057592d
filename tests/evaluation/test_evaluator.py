import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from macro_routing.engine.likelihood import score_choices, score_choices_for_routes
from macro_routing.errors import MacroError, TaskError
from macro_routing.evaluation import model_answers
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.evaluation.model_answers import answer_examples
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.evaluation.score_store import ScoreStore
from macro_routing.evaluation.scoring_settings import EXACT, NEVER, UnitSizes
from macro_routing.evaluation.work_items import group_examples_into_race_units, split_examples_into_work_units
from macro_routing.models import load_model
from macro_routing.models.routing import apply_route
from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search import MarkovPolicy
from macro_routing.search.macro import select_elite
from macro_routing.tasks import Example, load_task
from tests.models.tiny import LAYERS, tiny_folder

STANDARD = Route.standard(LAYERS)
ROUTE = parse_route("L0-L3 L3 RJ", LAYERS)
LIKELIHOOD = DecodingSettings("likelihood")


@pytest.fixture(scope="session")
def smollm2():
    torch.set_num_threads(1)
    return load_model("smollm2-135m")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Where no real answers are needed."""
    return load_model(str(tiny_folder(tmp_path_factory.mktemp("model"), "llama")))


@pytest.fixture
def category():
    return load_task("category", seed=11)


@pytest.mark.parametrize("name", ["category", "sequence"])
def test_the_short_tasks_are_neither_chance_nor_ceiling_and_short(smollm2, name):
    """Measured on a seed that nothing else uses; chance is 25 %."""
    task = load_task(name, seed=4321)
    examples = task.pools["test"][:60]
    share = sum(outcome.correct for outcome in answer_examples(smollm2, smollm2.model, task, examples, LIKELIHOOD)) / 60
    assert 0.35 < share < 0.85
    for example in examples:
        pieces = [example.question, *(f" {choice}" for choice in example.choices)]
        assert sum(len(smollm2.tokenizer.encode(piece)) for piece in pieces) <= 24


def test_a_second_run_comes_from_the_store(tiny, category, tmp_path, monkeypatch):
    evaluator = Evaluator(tiny, category, LIKELIHOOD, ScoreStore(tmp_path / "s.sqlite"))
    examples = category.pools["test"][:12]
    first = evaluator.evaluate([STANDARD, ROUTE, ROUTE], examples)
    assert [scores.from_store for scores in first.values()] == [0, 0]
    more = evaluator.evaluate([ROUTE], category.pools["test"][:14])[ROUTE]
    assert more.from_store == 12
    monkeypatch.setattr(
        "macro_routing.evaluation.evaluator.answer_with_every_route",
        lambda *_args, **_kwargs: pytest.fail("must come from the store"),
    )
    again = evaluator.evaluate([STANDARD, ROUTE], examples)
    assert {route: scores.outcomes for route, scores in again.items()} == {r: s.outcomes for r, s in first.items()}


def test_whatever_changes_the_answer_changes_the_key(tiny, category):
    base = Evaluator(tiny, category, DecodingSettings("direct")).scope
    prompts = dataclasses.replace(category.prompts, direct="{question}?")
    grader = dataclasses.replace(category.grader, version="another")
    others = [
        Evaluator(tiny, dataclasses.replace(category, prompts=prompts), DecodingSettings("direct")),
        Evaluator(tiny, dataclasses.replace(category, grader=grader), DecodingSettings("direct")),
        Evaluator(tiny, category, DecodingSettings("direct", answer_budget=5)),
        Evaluator(tiny, category, DecodingSettings("reasoning")),
        Evaluator(tiny, category, LIKELIHOOD),
        Evaluator(tiny, category, DecodingSettings("likelihood", by_letter=True)),
        Evaluator(dataclasses.replace(tiny, numerics_id="other"), category, DecodingSettings("direct")),
    ]
    assert all(other.scope != base for other in others)
    assert (
        Evaluator(tiny, category, DecodingSettings("direct", reasoning_budget=7)).scope == base
    )  # not used in this mode


def test_changed_contents_under_the_same_id_are_another_example(tiny, category, tmp_path):
    evaluator = Evaluator(tiny, category, LIKELIHOOD, ScoreStore(tmp_path / "s.sqlite"))
    example = category.pools["test"][0]
    evaluator.evaluate([STANDARD], [example])
    changed = dataclasses.replace(example, answer="A" if example.answer != "A" else "B")
    assert evaluator.evaluate([STANDARD], [changed])[STANDARD].from_store == 0


def test_direct_and_two_stage_answers_record_their_cost(smollm2):
    task = load_task("counting", seed=3)
    examples = task.pools["test"][:3]
    for outcome in answer_examples(smollm2, smollm2.model, task, examples, DecodingSettings("direct", answer_budget=6)):
        assert outcome.reasoning_tokens == 0
        assert outcome.answer_tokens <= 6
        assert outcome.answer_truncated == (outcome.answer_tokens == 6)
    for outcome in answer_examples(
        smollm2, smollm2.model, task, examples, DecodingSettings("reasoning", reasoning_budget=8, answer_budget=4)
    ):
        assert 0 < outcome.reasoning_tokens <= 8
        assert outcome.reasoning_truncated == (outcome.reasoning_tokens == 8)


def test_a_think_block_is_opened_by_the_template_and_closed_for_the_model(smollm2, monkeypatch):
    import copy

    tokenizer = copy.deepcopy(smollm2.tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}"
    )
    thinker = dataclasses.replace(smollm2, tokenizer=tokenizer)
    seen = {}

    def spy(_model, prompts, stages):
        seen.update(reasoning=stages[0], prompt=tokenizer.decode(prompts[0]))
        return []

    monkeypatch.setattr(model_answers, "generate_reasoning_then_answer", spy)
    task = load_task("counting")
    with pytest.raises(ValueError, match="zip"):
        answer_examples(thinker, None, task, task.pools["test"][:1], DecodingSettings("reasoning"))
    assert seen["prompt"].endswith("<think>")
    assert tokenizer.decode(seen["reasoning"].forced_tokens) == "</think>\n\n"
    assert tokenizer.convert_tokens_to_ids("</think>") in seen["reasoning"].end_tokens


def test_likelihood_without_choices_is_rejected(smollm2):
    task = load_task("counting")
    with pytest.raises(TaskError, match="has no choices"):
        answer_examples(smollm2, smollm2.model, task, task.pools["test"][:1], LIKELIHOOD)


@pytest.mark.parametrize("wrong", [{"mode": "guess"}, {"answer_budget": 0}, {"reasoning_budget": -1}, {"by_letter": 1}])
def test_impossible_decodings_are_rejected(wrong):
    with pytest.raises(MacroError, match=next(iter(wrong))):
        DecodingSettings(**wrong)


def test_examples_are_values():
    assert Example("a", "q", "1") == Example("a", "q", "1")


# --- the shared engine against the plain one ----------------------------------------------------------------------

ROUTES = [parse_route(text, 30) for text in ("L0 RJ", "L0-L17 L17 RJ", "L0-L17 L15(+h-2) RJ", "L0-L3 L5 RJ")]


@pytest.mark.parametrize(
    ("name", "examples", "decoding"),
    [
        ("category", 4, LIKELIHOOD),
        ("category", 4, DecodingSettings("likelihood", by_letter=True)),
        ("counting", 2, DecodingSettings("direct", answer_budget=4)),
        ("arithmetic", 2, DecodingSettings("reasoning", reasoning_budget=4, answer_budget=2)),
    ],
)
def test_routes_together_answer_as_each_alone(smollm2, name, examples, decoding):
    task = load_task(name, seed=11)
    examples = task.pools["test"][:examples]
    together = model_answers.answer_with_every_route(smollm2, ROUTES[2:], task, examples, decoding)
    for route in ROUTES[2:]:
        assert together[route] == answer_examples(smollm2, apply_route(smollm2, route), task, examples, decoding)


@pytest.mark.parametrize("most_tokens", [1, 10**6])
def test_batches_of_one_and_of_many_score_alike_on_a_real_model(smollm2, category, most_tokens):
    items = model_answers.build_choice_items(smollm2, category, category.pools["test"][:5], by_letter=False)
    found = score_choices_for_routes(smollm2.model, ROUTES[:3], items, max_tokens=most_tokens)
    for route in ROUTES[:3]:
        plain = score_choices(apply_route(smollm2, route), items)
        assert [value for row in found[route] for value in row] == pytest.approx(
            [value for row in plain for value in row], abs=1e-4
        )


@pytest.mark.engines
def test_racing_on_a_real_model_keeps_the_elite_of_full_scoring(smollm2, category, tmp_path):
    rng = np.random.default_rng(5)
    policy = MarkovPolicy.make_prior(RouteSpace(30, max_length=42))
    draws = [policy.sample_program(rng).to_route(30) for _ in range(9)]
    draws.append(draws[0])
    examples = category.pools["train"][:16]
    store = ScoreStore(tmp_path / "s.sqlite")
    raced = Evaluator(smollm2, category, LIKELIHOOD, store).race_draws(draws, examples, keep=2)
    full = Evaluator(smollm2, category, LIKELIHOOD).race_draws(draws, examples, keep=2, mode=NEVER)
    assert select_elite(raced.outcomes, 2) == select_elite(full.outcomes, 2)
    assert [raced.outcomes[n] for n in select_elite(full.outcomes, 2)] == [
        full.outcomes[n] for n in select_elite(full.outcomes, 2)
    ]
    assert full.stopped == 0
    assert full.requested == raced.requested == 160
    assert raced.duplicates == full.duplicates == 16
    assert raced.computed_evaluations == 160 - 16 - raced.stopped
    again = Evaluator(smollm2, category, LIKELIHOOD, store).race_draws(draws, examples, keep=2)
    assert again.outcomes == raced.outcomes
    assert again.computed_evaluations == 0


def test_a_unit_is_stored_whole_or_redone_whole(tiny, category, tmp_path, monkeypatch):
    store = ScoreStore(tmp_path / "s.sqlite")
    evaluator = Evaluator(tiny, category, LIKELIHOOD, store, UnitSizes(full=4))
    examples = category.pools["test"][:12]
    asked = []

    def answered(frozen, routes, task, wanted, decoding, **more):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append([example.id for example in wanted])
        return model_answers.answer_with_every_route(frozen, routes, task, wanted, decoding, **more)

    monkeypatch.setattr("macro_routing.evaluation.evaluator.answer_with_every_route", answered)
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate([STANDARD], examples)
    monkeypatch.undo()
    resumed = evaluator.evaluate([STANDARD], examples)[STANDARD]
    assert resumed.from_store == 8
    fresh = Evaluator(tiny, category, LIKELIHOOD, None, UnitSizes(full=4))
    assert resumed.outcomes == fresh.evaluate([STANDARD], examples)[STANDARD].outcomes


@pytest.mark.parametrize(("keep", "mode", "units"), [(1, EXACT, {2}), (2, EXACT, {16}), (1, NEVER, {16})])
def test_where_nothing_races_choices_are_compared_in_full_units(category, monkeypatch, keep, mode, units):
    """Units of two examples leave a processor idle; they are for stopping routes that lose."""
    asked = []

    def right(_self, routes, unit):
        asked.append(len(unit))
        return {route: [ExampleOutcome(correct=True, prediction="A")] * len(unit) for route in routes}

    monkeypatch.setattr(Evaluator, "run_routes_on_unit", right)
    monkeypatch.setattr(Evaluator, "scope", {})
    frozen = SimpleNamespace(name="fake", layers=LAYERS)
    evaluator = Evaluator(frozen, category, LIKELIHOOD, sizes=UnitSizes(race=8, race_late=2, full=16))
    evaluator.race_draws([STANDARD, ROUTE], category.pools["train"][:16], keep, mode)
    assert set(asked) == units


def test_memory_that_runs_out_halves_the_batch_and_is_reported_once(tiny, category, monkeypatch):
    def small(frozen, routes, task, wanted, decoding, **more):
        if len(wanted) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return model_answers.answer_with_every_route(frozen, routes, task, wanted, decoding, **more)

    examples = category.pools["test"][:12]
    expected = Evaluator(tiny, category, LIKELIHOOD).evaluate([STANDARD, ROUTE], examples)
    monkeypatch.setattr("macro_routing.evaluation.evaluator.answer_with_every_route", small)
    said = []
    halved = Evaluator(tiny, category, LIKELIHOOD, report=said.append).evaluate([STANDARD, ROUTE], examples)
    assert {r: e.outcomes for r, e in halved.items()} == {r: e.outcomes for r, e in expected.items()}
    assert len(said) == 1


def test_pairs_that_were_too_many_once_are_not_tried_again(tiny, category, monkeypatch):
    tried = []

    def small(frozen, pairs, *given, **more):
        tried.append(len(pairs))
        if len(pairs) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return model_answers.answer_pairs(frozen, pairs, *given, **more)

    examples = category.pools["test"][:12]
    pairs = [(route, example) for example in examples for route in (STANDARD, ROUTE)]
    expected = Evaluator(tiny, category, LIKELIHOOD).evaluate_pairs(pairs)
    monkeypatch.setattr("macro_routing.evaluation.evaluator.answer_pairs", small)
    evaluator = Evaluator(tiny, category, LIKELIHOOD)
    found = evaluator.evaluate_pairs(pairs[:12])
    assert max(tried) > 3
    tried.clear()
    # A copy, as a run makes one for every stage, knows it, too.
    found += dataclasses.replace(evaluator, on_outcomes=lambda _: None).evaluate_pairs(pairs[12:])
    assert max(tried) <= 3
    assert found == expected


def test_units_do_not_depend_on_anything_but_the_list():
    task = load_task("category", seed=11)
    examples = task.pools["train"][:50]
    sizes = UnitSizes(race=8, race_late=2)
    units = group_examples_into_race_units(examples, sizes)
    assert sorted(one.id for unit in units for one in unit) == sorted(one.id for one in examples)
    assert len(units[0]) > 2  # the first ones are larger
    assert max(map(len, units)) <= 8
    assert max(map(len, units[-15:])) <= 2
    assert units == group_examples_into_race_units(examples, sizes)
    assert split_examples_into_work_units(examples, 16)[:2] == split_examples_into_work_units(examples[:40], 16)[:2]


def test_a_route_whose_numbers_overflow_is_wrong_not_broken(category):
    example = category.pools["test"][0]
    (outcome,) = model_answers.grade_choice_likelihoods([example], [[float("nan")] * len(example.choices)], LIKELIHOOD)
    assert not outcome.correct
    assert outcome.prediction == ""
