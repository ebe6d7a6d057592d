"""Mixtures for written answers, end to end on a tiny model."""

import argparse
import json
from collections import Counter

import torch

from benchmarks.record import ROOT
from experiments import mixture_answers
from experiments.kept_searches import read_correct, run_missing
from experiments.mixture_answers import (
    GRID,
    SAMPLES,
    SELF_CONSISTENCY,
    STANDARD,
    encode_references,
    list_grid,
    list_missing,
    make_rows,
    make_token_items,
    sample_answers,
    vote,
)
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.model_answers import answer_examples, encode_prompts
from macro_routing.evaluation.outcomes import ExampleOutcome
from macro_routing.routes.mixture import parse_mixture
from macro_routing.search.mixture_controls import DOLA, SKIP_LAYER_CD, list_control_sources
from macro_routing.tasks.grading import GRADERS
from tests.runs.small import small_folder, small_frozen, small_task

DECODING = DecodingSettings("direct", answer_budget=2)


def test_tokens_of_references_are_choices_among_plausible_ones():
    frozen, task = small_frozen(), small_task()
    examples = task.pools["train"][:12]
    prompts = encode_prompts(frozen, task, examples, DECODING)
    references = encode_references(frozen, examples)
    items, answers, owners = make_token_items(frozen, prompts, references)
    assert all(item.prompt[: len(prompts[owner])] == prompts[owner] for item, owner in zip(items, owners, strict=True))
    whole = {(*prompt, *reference) for prompt, reference in zip(prompts, references, strict=True)}
    assert 0 < len(items) <= sum(map(len, references))
    for item, answer in zip(items, answers, strict=True):
        text = (*item.prompt, *item.choices[answer])
        assert any(one[: len(text)] == text for one in whole)
        probs = frozen.model(torch.tensor([item.prompt])).logits[0, -1].softmax(-1)
        plausible = torch.nonzero(probs >= 0.1 * probs.max())[:, 0].tolist()
        assert [token for (token,) in item.choices] == plausible


def test_samples_differ_and_leave_the_model_as_it_was():
    frozen, task = small_frozen(), small_task()
    examples = task.pools["train"][:12]
    before = answer_examples(frozen, frozen.model, task, examples, DECODING)
    samples = sample_answers(frozen, task, examples, DECODING, seed=1)
    assert len(samples) == SAMPLES
    assert len({tuple(one.text for one in sample) for sample in samples}) > 1
    assert sample_answers(frozen, task, examples, DECODING, seed=1) == samples
    assert answer_examples(frozen, frozen.model, task, examples, DECODING) == before


def test_samples_follow_the_models_distribution():
    frozen, task = small_frozen(), small_task()
    example = task.pools["train"][0]
    decoding = DecodingSettings("direct", answer_budget=1)
    (prompt,) = encode_prompts(frozen, task, [example], decoding)
    logits = frozen.model(torch.tensor([prompt])).logits[0, -1].float()
    expected = (logits / mixture_answers.TEMPERATURE).softmax(-1)
    sampled = Counter(
        one.text for sample in sample_answers(frozen, task, [example] * 1000, decoding, 3) for one in sample
    )
    for token in expected.topk(5).indices.tolist():
        share = sampled[str(frozen.tokenizer.decode([token], skip_special_tokens=True))] / (1000 * SAMPLES)
        assert abs(share - float(expected[token])) < 0.05


def test_the_most_common_answer_wins_and_the_earliest_of_equal_ones():
    example = small_task().pools["train"][0]

    def vote_on(*answers, grader="text"):
        return vote(GRADERS[grader], example, [ExampleOutcome(False, answer) for answer in answers]).prediction

    assert vote_on("a", "b", "b") == "b"
    assert vote_on("c", "a", "b") == "c"
    # A text without an answer has no vote, unless nothing else was written.
    assert vote_on("", "", "b") == "b"
    assert vote_on("", "", "") == ""
    # Equal is what the grader takes for equal.
    assert vote_on("7", "5", "5.0", grader="number") == "5"


def test_controls_are_chosen_on_as_many_examples_as_the_grid(monkeypatch):
    layers, train = 6, list(range(300))
    asked = []

    def count(evaluator, routes, examples):  # noqa: ARG001
        asked.append((set(routes), len(examples)))
        order = sorted(routes, key=str, reverse=len(examples) > 100)  # more examples turn the order round
        return {route: len(order) - index for index, route in enumerate(order)}

    monkeypatch.setattr(mixture_answers, "count_correct", count)
    chosen = mixture_answers.search_grid(argparse.Namespace(frozen=argparse.Namespace(layers=layers)), train)
    (_, few), (refined, many) = asked
    assert (few, many) == (mixture_answers.FITTED, mixture_answers.FITTED + mixture_answers.REFITTED)
    assert set(chosen.values()) <= refined
    for title, name in (("DoLa, static", DOLA), ("SkipLayerCD", SKIP_LAYER_CD)):
        sources = sorted(list_control_sources(name, layers)[1:], key=str)[: mixture_answers.BEST]
        assert chosen[title] == sources[-1]  # the best by all examples among the best few by few


def test_a_setting_is_run_once_and_tabulated(tmp_path, monkeypatch):
    model = str(small_folder(tmp_path / "model"))
    monkeypatch.setattr(mixture_answers, "SETTINGS", {"counting-direct": ("counting", DECODING)})
    for name, value in (("FITTED", 6), ("REFITTED", 4), ("TESTED", 10), ("SINGLE_SKIPS", 2)):
        monkeypatch.setattr(mixture_answers, name, value)
    arguments = argparse.Namespace(
        model=model, runs=tmp_path, kept=tmp_path / "kept.jsonl", data_dir=None, minutes=20.0, only="", methods=None,
        seeds={"1"}, share=None,
    )  # fmt: skip
    for _ in range(2):  # nothing is run twice
        run_missing(arguments, GRID, list_missing)
    (line,) = [json.loads(text) for text in arguments.kept.read_text().splitlines()]
    assert all(len(read_correct(line, way)) == 10 for way in line["right"])
    grid = parse_mixture(line["routes"][GRID], line["layers"])
    assert any(set(grid.routes) == set(mixture.routes) for mixture in list_grid(line["layers"]))
    rows = {row["way"]: row for row in make_rows(arguments.kept)}
    assert list(rows) == [STANDARD, GRID, "DoLa, static", "SkipLayerCD", "references", SELF_CONSISTENCY]
    assert rows[STANDARD]["difference"] is None
    assert rows[SELF_CONSISTENCY]["layers"] == SAMPLES
    assert rows[GRID]["p_holm"] >= 0


def test_the_kept_runs_are_the_record():
    record = json.loads((ROOT / "docs" / "data" / "mixture_answers.json").read_text())
    assert make_rows(mixture_answers.KEPT) == record["results"]
