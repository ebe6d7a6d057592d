from dataclasses import replace

import numpy as np
import pytest

from macro_routing.errors import SearchError
from macro_routing.routes import RouteSpace
from macro_routing.search import MacroSearch, load_state, save_state


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SearchError, match=r"no saved search at .*nowhere"):
        load_state(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a state", b"\x80\x04K\x01."])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "state.npz"
    path.write_bytes(content)
    with pytest.raises(SearchError, match="not a sound saved search"):
        load_state(path)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "state.npz"
    save_state(path, MacroSearch(RouteSpace(4), 10).start())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SearchError, match="not a sound saved search"):
        load_state(path)


def test_no_damage_escapes_as_another_error(tmp_path):
    path = tmp_path / "state.npz"
    search = MacroSearch(RouteSpace(4), 10)
    save_state(str(path), search.start())
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            search.ask(load_state(str(path)))
        except SearchError:
            continue


def test_a_state_without_its_policy_is_refused(tmp_path):
    search = MacroSearch(RouteSpace(4), 10)
    save_state(tmp_path / "state.npz", replace(search.start(), arrays={}))
    with pytest.raises(SearchError, match="no policy"):
        search.ask(load_state(tmp_path / "state.npz"))


def test_rounds_that_contradict_the_draws_are_refused(tmp_path):
    save_state(tmp_path / "state.npz", replace(MacroSearch(RouteSpace(4), 10).start(), rounds=3))
    with pytest.raises(SearchError, match="claims 3 rounds"):
        load_state(tmp_path / "state.npz")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(SearchError, match="there is no folder"):
        save_state(tmp_path / "nowhere" / "state.npz", MacroSearch(RouteSpace(4), 10).start())


def test_pickled_arrays_are_refused(tmp_path):
    path = tmp_path / "state.npz"
    np.savez(path, record=np.array([{"format": "macro-search-state/1"}], dtype=object))
    with pytest.raises(SearchError, match="not a sound saved search"):
        load_state(path)


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    search = MacroSearch(RouteSpace(4), 10)
    save_state(path, search.start())
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez_compressed", lambda *_args, **_kwargs: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_state(path, search.start())
    assert path.read_bytes() == before
