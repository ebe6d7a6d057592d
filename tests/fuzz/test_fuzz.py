"""Whatever is read gives a result or an error of this project; ``make faults`` tries a hundred thousand inputs."""

import os

import pytest

from tests.fuzz.targets import SLOWER, TARGETS, drive

SHORT, LONGER = 40, 1500
_COUNTS = [pytest.param(SHORT, id="short"), pytest.param(LONGER, id="longer", marks=pytest.mark.engines)]


@pytest.mark.parametrize("count", _COUNTS)
@pytest.mark.parametrize("name", TARGETS)
def test_only_results_or_our_own_errors(name, count, tmp_path):
    count = max(SHORT, count // SLOWER.get(name, 1))
    counts = drive(name, tmp_path, count, number=int(os.environ.get("MACRO_FUZZ_SEED", "0")))
    assert counts.total() >= count * 0.9
    assert counts["refused"] > 0
    assert counts["read"] > 0 or name == "model names"  # no name but the built-in ones leads to a folder here
