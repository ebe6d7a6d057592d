"""One search from Python in one call."""

from pathlib import Path

import pytest

from macro_routing import apply_route, load_route, search_routes
from macro_routing.errors import RunError, SettingsError
from tests.runs.small import small_frozen, small_task

SETTINGS = {
    "preset": "quick",
    "seed": 3,
    "search": {"iterations": 1, "draws": 3},
    "data": {"training": 12, "validation": 8, "test": 8},
}


def test_a_search_in_one_call(tmp_path, monkeypatch):
    monkeypatch.setenv("MACRO_CACHE_DIR", str(tmp_path / "cache"))
    frozen, task = small_frozen(), small_task()
    result = search_routes(frozen, task, tmp_path / "run", **SETTINGS)
    assert result.folder == str(tmp_path / "run")
    assert result.comparison.n == 8
    route = load_route(tmp_path / "run" / "route.json", frozen)
    assert route == result.best_route
    assert apply_route(frozen, route).macro_route == route
    with pytest.raises(RunError, match="holds a run already"):
        search_routes(frozen, task, tmp_path / "run", **SETTINGS)
    elsewhere = search_routes(frozen, task, **SETTINGS)
    assert Path(elsewhere.folder, "result.json").is_file()
    assert elsewhere.best_route == result.best_route


def test_settings_are_checked():
    with pytest.raises(SettingsError, match="unknown"):
        search_routes(small_frozen(), small_task(), seeds=1)
