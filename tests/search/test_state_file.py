import json
import zipfile
from dataclasses import replace
from types import GenericAlias, SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

from macro_routing.errors import SearchError
from macro_routing.routes import RouteSpace
from macro_routing.search import MacroSearch, SearchState, load_state, save_state, state_file
from macro_routing.search.state_file import is_array_type


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SearchError, match=r"no saved search at .*nowhere"):
        load_state(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a state", b"\x80\x04K\x01."])
def test_other_files_are_rejected(tmp_path, content):
    path = tmp_path / "state.npz"
    path.write_bytes(content)
    with pytest.raises(SearchError, match="not an intact saved search"):
        load_state(path)


def test_a_damaged_file_is_rejected(tmp_path):
    path = tmp_path / "state.npz"
    save_state(path, MacroSearch(RouteSpace(4), 10).make_initial_state())
    intact = path.read_bytes()
    path.write_bytes(intact[: len(intact) // 2])
    with pytest.raises(SearchError, match="not an intact saved search"):
        load_state(path)


def test_no_damage_escapes_as_another_error(tmp_path):
    path = tmp_path / "state.npz"
    search = MacroSearch(RouteSpace(4), 10)
    save_state(str(path), search.make_initial_state())
    intact = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(intact)
        for index in rng.integers(len(intact), size=3):
            damaged[index] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            search.ask(load_state(str(path)))
        except SearchError:
            continue


def test_a_state_without_its_policy_is_rejected(tmp_path):
    search = MacroSearch(RouteSpace(4), 10)
    save_state(tmp_path / "state.npz", SearchState(search.identity))
    with pytest.raises(SearchError, match="belongs to another search"):
        search.ask(load_state(tmp_path / "state.npz"))


def test_arrays_are_known_by_either_form_of_numpys_alias():
    """From Python 3.12 on ``NDArray`` is a type alias of its own; a state that was saved could not be loaded there."""
    alias = SimpleNamespace(__value__=np.ndarray[tuple[int, ...], np.dtype[np.float64]])
    assert is_array_type(NDArray[np.float64])
    assert is_array_type(GenericAlias(alias, (np.float64,)))
    assert not is_array_type(tuple[float, ...])
    assert not is_array_type(int)


def test_rounds_that_contradict_the_draws_are_rejected(tmp_path):
    save_state(tmp_path / "state.npz", replace(MacroSearch(RouteSpace(4), 10).make_initial_state(), rounds=3))
    with pytest.raises(SearchError, match="claims 3 rounds"):
        load_state(tmp_path / "state.npz")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(SearchError, match="there is no folder"):
        save_state(tmp_path / "nowhere" / "state.npz", MacroSearch(RouteSpace(4), 10).make_initial_state())


def test_pickled_arrays_are_rejected(tmp_path):
    path = tmp_path / "state.npz"
    np.savez(path, record=np.array([{"format": "macro-search-state/1"}], dtype=object))
    with pytest.raises(SearchError, match="not an intact saved search"):
        load_state(path)


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    search = MacroSearch(RouteSpace(4), 10)
    save_state(path, search.make_initial_state())
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez_compressed", lambda *_args, **_kwargs: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_state(path, search.make_initial_state())
    assert path.read_bytes() == before


def make_head(state, **arrays):
    checksum = state_file._compute_checksum(state, arrays)
    return {"format": state_file._FORMAT, "kind": "SearchState", "state": state, "checksum": checksum}


def write_head(path, head, **arrays):
    np.savez_compressed(path, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **arrays)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_old_format_names_the_version_that_wrote_it(tmp_path, number):
    record = json.dumps({"format": f"macro-search-state/{number}", "identity": "{}"}).encode()
    np.savez(tmp_path / "state.npz", record=np.frombuffer(record, np.uint8))
    with pytest.raises(SearchError, match=r"written by macro-routing 0.1.0 or earlier .*continue it with that version"):
        load_state(tmp_path / "state.npz")


def test_a_later_format_names_the_version_that_wrote_it(tmp_path):
    write_head(tmp_path / "state.npz", {"format": "macro-search-state/99", "version": "7.1"})
    with pytest.raises(SearchError, match=r"macro-search-state/99', written by macro-routing 7.1; this version reads"):
        load_state(tmp_path / "state.npz")


def test_a_small_file_cannot_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    np.savez_compressed(path, head=np.zeros(2**28 + 2**27, np.uint8))
    assert path.stat().st_size < 2**20
    with pytest.raises(SearchError, match="claims to hold more than"):
        load_state(path)
    draw = {"round": 0, "layers": 10_000, "program": None, "outcome": [1, 1]}
    draws = [{**draw, "route": f"L{number} RJ"} for number in range(6)]
    state = {"identity": "{}", "rounds": 1, "stopped": False, "draws": draws}
    write_head(path, make_head(state))
    monkeypatch.setattr("macro_routing.search.state_file._MAX_STEPS", 50_000)
    with pytest.raises(SearchError, match="more than 50000 steps"):
        load_state(path)


def test_a_number_of_rounds_cannot_fill_the_memory(tmp_path):
    path = tmp_path / "state.npz"
    write_head(path, make_head({"identity": "{}", "rounds": 2**63, "stopped": False, "draws": []}))
    with pytest.raises(SearchError, match="it claims 9223372036854775808 rounds"):
        load_state(path)


@pytest.mark.parametrize("damage", ["altered", "text", "not finite"])
def test_arrays_that_were_altered_are_rejected(tmp_path, damage):
    path = tmp_path / "state.npz"
    search = MacroSearch(RouteSpace(6), 20)
    save_state(path, search.make_initial_state())
    with np.load(path) as archive:
        arrays = dict(archive)
    table = arrays["state.policy_table"]
    if damage == "altered":
        arrays["state.policy_table"] = table + 0.125
        expected = "do not match their checksum"
    else:
        arrays["state.policy_table"] = np.full(table.shape, "x" if damage == "text" else np.nan)
        head = json.loads(arrays["head"].tobytes())
        rest = {name: array for name, array in arrays.items() if name != "head"}
        head["checksum"] = state_file._compute_checksum(head["state"], rest)
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        expected = "state.policy_table must hold finite numbers"
    np.savez_compressed(path, **arrays)
    with pytest.raises(SearchError, match=expected):
        load_state(path)


def test_an_array_that_claims_another_size_is_rejected(tmp_path):
    path = tmp_path / "state.npz"
    header = str({"descr": "<f8", "fortran_order": False, "shape": (10**12,)}).ljust(117) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("head.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(SearchError, match="another type or size"):
        load_state(path)
