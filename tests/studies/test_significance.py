"""The paper's significance table from its main table, by the study's command and code."""

import json
from pathlib import Path

import pytest

from macro_routing.errors import RunError
from macro_routing.studies.significance import differences_by_model, read_results, significance_study
from tests.evaluation.test_statistics import TABLE

PUBLISHED = Path(__file__).parents[1] / "data" / "published_results.json"


@pytest.fixture(scope="module")
def published():
    # Llama is apart in the paper, and not among the models that p-values are corrected over.
    return significance_study(read_results(PUBLISHED), "Baseline", "MACRO", list(TABLE))


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
    text = published.table.markdown()
    assert "| Qwen3-1.7B | +12.68 |" in text
    assert "| 13/0/0 | 0.00073 | 13 |" in text
    assert "6 of 6 models" in published.headline
    assert published.figures[0].svg().count('class="gain"') == 6 + 1  # and its key


def test_lines_that_are_none_are_refused(tmp_path):
    with pytest.raises(RunError, match="cannot be read"):
        read_results(tmp_path / "none.json")
    file = tmp_path / "x.json"
    file.write_text(json.dumps([{"model": "m"}]))
    with pytest.raises(RunError, match="holds no main table"):
        read_results(file)
    with pytest.raises(RunError, match="did you mean 'Qwen3-1"):
        significance_study(read_results(PUBLISHED), "Baseline", "MACRO", ["Qwen3-1.7"])
    with pytest.raises(RunError, match="there are Baseline, "):
        differences_by_model(read_results(PUBLISHED), "Baseline", "MACR")
