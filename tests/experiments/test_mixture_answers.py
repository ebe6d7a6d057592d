"""Weights for written answers: both ways end to end on a tiny model."""

import argparse

import torch

from experiments.mixture_answers import encode_references, list_members, make_token_items, run
from macro_routing.evaluation import Evaluator
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.model_answers import encode_prompts
from macro_routing.routes.mixture import parse_mixture
from tests.runs.small import small_frozen, small_task

DECODING = DecodingSettings("direct", answer_budget=2)


def test_tokens_of_references_are_choices_among_plausible_ones():
    frozen, task = small_frozen(), small_task()
    examples = task.pools["train"][:12]
    prompts = encode_prompts(frozen, task, examples, DECODING)
    references = encode_references(frozen, examples)
    items, answers = make_token_items(frozen, prompts, references)
    whole = {(*prompt, *reference) for prompt, reference in zip(prompts, references, strict=True)}
    assert 0 < len(items) <= sum(map(len, references))
    for item, answer in zip(items, answers, strict=True):
        text = (*item.prompt, *item.choices[answer])
        assert any(one[: len(text)] == text for one in whole)
        probs = frozen.model(torch.tensor([item.prompt])).logits[0, -1].softmax(-1)
        plausible = torch.nonzero(probs >= 0.1 * probs.max())[:, 0].tolist()
        assert [token for (token,) in item.choices] == plausible


def test_both_ways_are_judged_on_other_examples():
    frozen, task = small_frozen(), small_task()
    arguments = argparse.Namespace(fitted=10, judged=6, routes=4)
    rows, summary = run(arguments, frozen, task, Evaluator(frozen, task, DECODING))
    assert [rows[0]["way"], rows[-1]["way"]] == ["standard pass", "grid"]
    assert {row["n"] for row in rows} == {6}
    assert len(summary["grid"]) > 4
    mixture = parse_mixture(rows[-1]["mixture"].strip("`"), frozen.layers)
    assert set(mixture.routes) <= set(list_members(frozen.layers, 4))
