"""Where the real benchmark files are on this machine: MACRO_DATA_DIR, or shared/datasets beside the checkout."""

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "datasets"
FOLDER = Path(os.environ["MACRO_DATA_DIR"]) if os.environ.get("MACRO_DATA_DIR") else _BESIDE
needs_datasets = pytest.mark.skipif(not FOLDER.is_dir(), reason="no benchmark files here; set MACRO_DATA_DIR")
