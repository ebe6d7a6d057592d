"""Side effects of a route, end to end on a tiny model."""

import json
import math

import pytest
import torch

from macro_routing.errors import TaskError
from macro_routing.models.routing import apply_route
from macro_routing.routes import Route
from macro_routing.studies.perplexity import compare_perplexities, compute_negative_log_likelihoods, split_windows
from macro_routing.studies.settings import (
    SideEffectsSettings,
)
from macro_routing.studies.side_effects import interleave_questions, run_side_effects
from tests.runs.small import small_task
from tests.studies.contexts import check_written_files, small_context


def test_side_effects(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    text = tmp_path / "plain.txt"
    text.write_text("w1 w2 w3 w4 w5 " * 200)
    found = run_side_effects(context, subject, SideEffectsSettings(("small", "other"), text, 5))
    assert [row["searched"] for row in found.table.rows] == [True, False]
    assert found.details["text"] == "plain.txt"
    plain = found.tables["perplexity"].rows[0]
    assert plain["windows"] == 4
    assert "with seed 1" in found.table.notes[0]
    assert found.table.notes[1] == "2 comparisons were made; p, Holm is corrected for all of them, p is not."
    assert plain["low"] <= plain["ratio"] <= plain["high"]
    check_written_files(context, found)


def test_plain_text_is_of_all_tasks_and_predicts_something(frozen):
    first, second = small_task().pools["test"][:3], small_task("other", offset=31).pools["test"][:2]
    texts = interleave_questions([first, second])
    assert texts[:4] == [one.question for one in (first[0], second[0], first[1], second[1])]
    assert len(texts) == 5
    with pytest.raises(TaskError, match="one token"):
        split_windows(frozen, ["w9"], 10)


def test_perplexity_is_that_of_plain_passes(frozen, subject):
    rows = split_windows(frozen, ["w1 w2 w3 w4", "w9", "w5 w6 w7 w8 w9 w10 w11"], 10)
    for route in (Route.standard(frozen.layers), subject.route):
        for row, value in zip(rows, compute_negative_log_likelihoods(frozen, route, rows), strict=True):
            logits = apply_route(frozen, route)(torch.tensor([row])).logits[0, :-1]
            expected = torch.nn.functional.cross_entropy(logits, torch.tensor(row[1:]), reduction="sum")
            assert value == pytest.approx(expected.item(), rel=1e-4)
    assert all(len(row) > 1 for row in rows)


def test_rows_that_are_no_numbers_are_left_out_of_perplexity(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    text = tmp_path / "plain.txt"
    text.write_text("w1 w2 w3 w4 w5 " * 200)
    found = run_side_effects(context, subject, SideEffectsSettings(("small",), text, 5))
    assert len(found.tables["perplexity"].notes) == 1
    (cell,) = (context.folder.path / "measurements").glob("plain-text*")
    kept = json.loads(cell.read_text())
    kept["values"]["route"][0], kept["values"]["standard"][2] = math.nan, math.inf
    cell.write_text(json.dumps(kept))  # as a route is kept whose numbers run over
    some = run_side_effects(context, subject, SideEffectsSettings(("small",), text, 5))
    (row,) = some.tables["perplexity"].rows
    assert (row["windows"], row["left_out"]) == (2, 2)
    whole = split_windows(frozen, [text.read_text()], 5)
    expected = compare_perplexities([whole[1], whole[3]], {name: [v[1], v[3]] for name, v in kept["values"].items()})
    assert row == {"source": "plain.txt", **expected, "left_out": 2}
    assert "Of 4 rows 2 are left out" in some.tables["perplexity"].notes[1]
    check_written_files(context, some)
    kept["values"]["route"] = [math.nan] * 4
    cell.write_text(json.dumps(kept))
    none = run_side_effects(context, subject, SideEffectsSettings(("small",), text, 5))
    assert "no perplexity (none of 4 rows came to finite numbers) on plain.txt" in none.headline
    assert not none.tables["perplexity"].rows
    assert "Of 4 rows 4 are left out" in none.tables["perplexity"].notes[1]
    assert "nan" not in none.tables["perplexity"].to_markdown() + none.headline
    check_written_files(context, none)
