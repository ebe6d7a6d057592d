"""The logit lens, end to end on a tiny model."""

import dataclasses
import json
import math

import pytest
import torch

from macro_routing.errors import RunError
from macro_routing.models.routing import apply_route
from macro_routing.routes import Route
from macro_routing.studies.logit_lens import compute_stepwise_gold_log_probs, make_logit_lens_examples, run_logit_lens
from macro_routing.studies.study_result import write_study_result
from macro_routing.studies.task_with_answer_mode import TaskWithAnswerMode
from tests.studies.contexts import SMALL, WRITTEN, check_written_files, small_context


def test_the_lens_ends_with_what_the_model_says(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    for task in (SMALL, WRITTEN, TaskWithAnswerMode("written", "reasoning")):
        prepared = context.prepare_task(task, 1)
        items = make_logit_lens_examples(prepared.evaluator, prepared.splits.test[:5])
        for route in (Route.standard(frozen.layers), subject.route):
            read = compute_stepwise_gold_log_probs(frozen, route, items)
            assert {len(one) for one in read} == {route.length}
            for item, values in zip(items, read, strict=True):
                logits = apply_route(frozen, route)(torch.tensor([item.context])).logits[0, -1]
                assert values[-1] == pytest.approx(torch.log_softmax(logits, -1)[item.gold].item(), abs=1e-4)


def test_the_lens_reads_the_right_token(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    prepared = context.prepare_task(SMALL, 1)
    examples = prepared.splits.test[:5]
    for item, example in zip(make_logit_lens_examples(prepared.evaluator, examples), examples, strict=True):
        assert frozen.tokenizer.decode([item.gold]).strip() == example.choices[example.correct_choice]
        assert frozen.tokenizer.decode(item.context).endswith("Answer:")
    reasoned = context.prepare_task(TaskWithAnswerMode("written", "reasoning"), 1)
    item = make_logit_lens_examples(reasoned.evaluator, reasoned.splits.test[:1])[0]
    standard = Route.standard(frozen.layers)
    outcome = reasoned.evaluator.evaluate([standard], reasoned.splits.test[:1])[standard].outcomes[0]
    assert outcome.reasoning.strip()
    assert outcome.reasoning.strip() in frozen.tokenizer.decode(item.context)  # the standard pass's, held fixed


def test_logit_lens(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    found = run_logit_lens(context, subject)
    assert [row["steps"] for row in found.table.rows] == [frozen.layers, subject.route.length]
    assert found.table.rows[1]["low"] <= found.table.rows[1]["difference"] <= found.table.rows[1]["high"]
    assert len(found.details["steps"]["route"]) == subject.route.length
    check_written_files(context, found)
    again = run_logit_lens(small_context(tmp_path, frozen, minutes=0), subject)
    assert again.table.rows == found.table.rows
    with pytest.raises(RunError, match="another model, other data"):
        run_logit_lens(small_context(tmp_path, frozen), dataclasses.replace(subject, seed=1, route=Route.standard(6)))


def test_readings_that_are_no_numbers_are_left_out(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    run_logit_lens(context, subject)
    (first, *_) = sorted((context.folder.path / "measurements").iterdir())
    kept = json.loads(first.read_text())
    kept["values"]["route"][0][2], kept["values"]["route"][1][-1] = math.nan, -math.inf
    first.write_text(json.dumps(kept))  # as a route is kept whose numbers run over
    found = run_logit_lens(context, subject)
    assert "Of 20 examples 2 are left out" in found.table.notes[1]
    assert found.table.rows[0]["n"] == 18
    check_written_files(context, found)
    for path in (context.folder.path / "measurements").iterdir():
        kept = json.loads(path.read_text())
        kept["values"]["route"] = [[math.nan] * len(row) for row in kept["values"]["route"]]
        path.write_text(json.dumps(kept))
    none = run_logit_lens(context, subject)
    assert none.headline.startswith("None of 20 examples can be read")
    write_study_result(context.folder, none, {}, "", lambda _: None)
