"""The paper's significance table from its main table, by the study's command and code."""

import json
from pathlib import Path

import pytest

from macro_routing.errors import RunError
from macro_routing.studies.significance import (
    compute_differences_by_model,
    load_main_table_study_rows,
    run_significance_study,
)
from tests.evaluation.test_statistics import TABLE

PUBLISHED = Path(__file__).parents[1] / "data" / "published_results.json"


@pytest.fixture(scope="module")
def published():
    # Llama is apart in the paper, and not among the models that p-values are corrected over.
    return run_significance_study(load_main_table_study_rows(PUBLISHED), "Baseline", "MACRO", tuple(TABLE))


def test_the_papers_table_is_reproduced(published):
    rows = {row["model"]: row for row in published.table.rows}
    assert set(rows) == set(TABLE)
    for model, (mean, (low, high), counts, p) in TABLE.items():
        row = rows[model]
        assert row["mean"] == pytest.approx(mean, abs=0.0051)
        assert (row["low"], row["high"]) == pytest.approx((low, high), abs=0.15)
        assert (row["wins"], row["ties"], row["losses"]) == counts
        assert float(f"{row['p_holm']:.1e}") == p
        assert row["benchmarks"] == 13


def test_the_files_say_the_same(published):
    text = published.table.to_markdown()
    assert "| Qwen3-1.7B | +12.68 |" in text
    assert "| 13/0/0 | 0.00073 | 13 |" in text
    assert "6 of 6 models" in published.headline
    assert published.figures[0].to_svg().count('class="gain"') == 6 + 1  # and its key


def test_lines_that_are_none_are_rejected(tmp_path):
    with pytest.raises(RunError, match="cannot be read"):
        load_main_table_study_rows(tmp_path / "none.json")
    file = tmp_path / "x.json"
    file.write_text(json.dumps([{"model": "m"}]))
    with pytest.raises(RunError, match="holds no main table"):
        load_main_table_study_rows(file)
    with pytest.raises(RunError, match="did you mean 'Qwen3-1"):
        run_significance_study(load_main_table_study_rows(PUBLISHED), "Baseline", "MACRO", ("Qwen3-1.7",))
    with pytest.raises(RunError, match="there are Baseline, "):
        compute_differences_by_model(load_main_table_study_rows(PUBLISHED), "Baseline", "MACR")


def line(model="m", method="MACRO", **accuracy):
    return {"model": model, "method": method, "accuracy": accuracy or {"gsm8k": [50.0, 1.0]}}


def refusal(tmp_path, text):
    file = tmp_path / "lines.json"
    file.write_text(text if isinstance(text, str) else json.dumps(text))
    with pytest.raises(RunError) as rejected:
        run_significance_study(load_main_table_study_rows(file), "Baseline", "MACRO")
    return str(rejected.value)


def test_two_lines_of_one_model_and_method_are_rejected(tmp_path):
    told = refusal(tmp_path, [line(method="Baseline"), line(), line(gsm8k=[60.0, 1.0])])
    assert "two lines of m with MACRO" in told


@pytest.mark.parametrize("key", ["model", "method"])
@pytest.mark.parametrize("name", [["m"], {"m": 1}, None, 4])
def test_names_that_are_none_are_rejected(tmp_path, key, name):
    told = refusal(tmp_path, [{**line(), key: name}])
    assert f"the {key} of line 1 is {name!r}, not a string" in told
    assert '{"model": name, "method": name, "accuracy": ' in told


@pytest.mark.parametrize(
    "value",
    ["[1" + "0" * 400 + "]", "[NaN]", "[-Infinity, 1]", "[1e400]", "[null]", "[true]", '["4"]', "[]", "4", "{}"],
)
def test_values_that_are_no_numbers_are_named(tmp_path, value):
    lines = json.dumps([line(method="Baseline"), line(sciq="HERE")]).replace('"HERE"', value)
    told = refusal(tmp_path, lines)
    assert "m, MACRO, sciq: " in told
    assert "list of" in told
    assert len(told) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("text", ["[" * 200_000, "4", '"lines"', "[4]", "{}", '{"details": 4}', '[{"accuracy": []}]'])
def test_other_json_is_rejected_in_words(tmp_path, text):
    assert "holds no main table (" in refusal(tmp_path, text)


def test_no_lines_and_no_benchmark_in_common_are_said(tmp_path):
    assert "holds no results; it takes" in refusal(tmp_path, [])
    both = [line("fine", name) for name in ("Baseline", "MACRO")]
    told = refusal(tmp_path, [*both, line("apart", "Baseline", sciq=[1, 0], Avg=[1, 0]), line("apart", Avg=[1, 0])])
    assert "Baseline and MACRO of apart have no benchmark in common" in told
