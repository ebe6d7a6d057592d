"""Files that can be read in one sitting."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_LINES = 400


@pytest.mark.parametrize("folder", ["src", "benchmarks", "experiments", "tools"])
def test_no_file_is_too_long(folder):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert lengths
    assert {str(path.relative_to(ROOT)): length for path, length in lengths.items() if length > MAX_LINES} == {}
