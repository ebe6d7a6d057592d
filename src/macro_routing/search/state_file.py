"""A search's state as one file: a JSON head and arrays in an npz archive, written completely or not at all; no pickle.

All state classes are saved in the same way, by the types of their fields. Sizes are checked before anything is read or
built, so that a small file cannot fill the memory.
"""

import dataclasses
import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import MacroError, SearchError, shorten_value
from macro_routing.files import open_atomically
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Program, Route
from macro_routing.search.guided import GuidedState
from macro_routing.search.macro import RestartedSearchState
from macro_routing.search.policy_search import PolicySearchState
from macro_routing.search.searcher import Draw, Outcome, Proposal, Score, ScoringFailure, SearchState, StoppedScore
from macro_routing.version import __version__

_FORMAT = "macro-search-state/4"
_OLD_FORMATS = tuple(f"macro-search-state/{number}" for number in (1, 2, 3))
_STATE_TYPES = {kind.__name__: kind for kind in (SearchState, PolicySearchState, GuidedState, RestartedSearchState)}
_HEAD = "head"
_MAX_HEAD_BYTES = 64 * 2**20
_MAX_STEPS = 5_000_000
"""Maximum number of steps of all different routes: a short text may stand for a route of many steps."""


def save_state(path: str | os.PathLike[str], state: SearchState) -> None:
    """Write ``state`` to ``path``; an interrupted write leaves the old file as it was."""
    path = Path(path)
    if not path.parent.is_dir():
        raise SearchError(f"the search cannot be saved: there is no folder {path.parent}")
    arrays: dict[str, Any] = {}
    encoded = _encode_value(state, "state", arrays)
    head = {
        "format": _FORMAT,
        "version": __version__,
        "kind": type(state).__name__,
        "state": encoded,
        "checksum": _compute_checksum(encoded, arrays),
    }
    arrays[_HEAD] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    with open_atomically(path) as file:
        np.savez_compressed(file, **arrays)


def load_state(path: str | os.PathLike[str]) -> SearchState:
    """Read a state; anything but an intact state file is rejected with an explanation."""
    try:
        return _decode_state(_read_arrays(Path(path)))
    except FileNotFoundError:
        raise SearchError(f"there is no saved search at {path}") from None
    except MacroError as error:
        raise SearchError(f"{path} is not an intact saved search: {error}") from None
    except Exception as error:  # noqa: BLE001 a damaged archive can fail in any of the libraries that read it
        raise SearchError(f"{path} is not an intact saved search ({type(error).__name__})") from None


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz archive by name, unless they are too large for the file's size."""
    limit = min(2**30, 2**28 + 256 * path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > limit:
            raise SearchError(f"it claims to hold more than {limit >> 20} MiB")
        return {member.filename.removesuffix(".npy"): _parse_npy(archive.read(member)) for member in members}


def _parse_npy(data: bytes) -> NDArray[Any]:
    """An array in npy format; its size is compared with the data before any memory is allocated."""
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise SearchError("it holds an array of another npy version")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or fortran_order or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise SearchError("it holds an array of another type or size than it says")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)


def _decode_state(arrays: dict[str, NDArray[Any]]) -> SearchState:
    head_array = arrays.pop(_HEAD if _HEAD in arrays else "record")  # formats 1 and 2 called the head "record"
    if head_array.nbytes > _MAX_HEAD_BYTES:
        raise SearchError(f"its head is larger than {_MAX_HEAD_BYTES >> 20} MiB")
    head = json.loads(head_array.tobytes())
    written_by = f"macro-routing {head.get('version', '0.1.0 or earlier')}"
    if head.get("format") in _OLD_FORMATS:
        raise SearchError(
            f"it was written by {written_by} (format {head['format']}); continue it with that version, or start the"
            " search again: its scores are in the score store"
        )
    if head.get("format") != _FORMAT:
        raise SearchError(
            f"its format is {shorten_value(head.get('format'))}, written by {written_by}; this version reads {_FORMAT}"
        )
    if head.get("checksum") != _compute_checksum(head["state"], arrays):
        raise SearchError("its contents do not match their checksum")
    state: SearchState = _StateDecoder(arrays).decode_value(_STATE_TYPES[head["kind"]], head["state"], "state")
    rounds = {draw.round for draw in state.draws}
    if len(rounds) != state.rounds or not all(0 <= number < state.rounds for number in rounds):
        raise SearchError(f"it claims {shorten_value(state.rounds)} rounds, but its draws are of other rounds")
    return state


def _compute_checksum(encoded: Any, arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of a state as JSON and of its arrays."""
    digest = hashlib.sha256(json.dumps(encoded).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _encode_value(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    """A value as JSON; arrays are put into ``arrays`` under their names."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    if isinstance(value, Draw):
        return _encode_draw(value)
    if isinstance(value, tuple):
        return [_encode_value(item, f"{name}.{index}", arrays) for index, item in enumerate(value)]
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {field: _encode_value(getattr(value, field), f"{name}.{field}", arrays) for field in fields}
    return value


def is_array_type(kind: Any) -> bool:
    """Whether a field is an array; numpy's ``NDArray`` is an alias of its own kind from Python 3.12 on."""
    origin = get_origin(kind)
    return (get_origin(getattr(origin, "__value__", None)) or origin) is np.ndarray


class _StateDecoder:
    """Builds a state from JSON and arrays; routes that occur several times are built once."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._routes: dict[tuple[str, int], Route] = {}
        self._steps = 0

    def decode_value(self, kind: Any, value: Any, name: str) -> Any:
        """The value of type ``kind``; the inverse of ``_encode_value``."""
        if is_array_type(kind):
            array = self._arrays[name]
            if array.dtype != np.float64 or not np.isfinite(array).all():
                raise SearchError(f"{name} must hold finite numbers")
            return array
        if kind is Draw:
            return self._draw_from_json(value)
        if get_origin(kind) is tuple:
            item = get_args(kind)[0]
            return tuple(self.decode_value(item, part, f"{name}.{index}") for index, part in enumerate(value))
        if dataclasses.is_dataclass(kind):
            hints = get_type_hints(kind)
            fields = [field.name for field in dataclasses.fields(kind) if field.init]
            return kind(**{field: self.decode_value(hints[field], value[field], f"{name}.{field}") for field in fields})  # type: ignore[operator]
        if type(value) is not kind:
            raise SearchError(f"{name} must be of type {kind.__name__}, not {shorten_value(value)}")
        return value

    def _draw_from_json(self, value: Mapping[str, Any]) -> Draw:
        program = None if value["program"] is None else parse_program(value["program"])
        proposal = Proposal(self._parse_route(value["route"], value["layers"]), program)
        return Draw(value["round"], proposal, _decode_outcome(value["outcome"]))

    def _parse_route(self, text: str, layers: int) -> Route:
        if (text, layers) not in self._routes:
            program: Program = parse_program(text)
            self._steps += len(program.steps) + layers
            if self._steps > _MAX_STEPS:
                raise SearchError(f"its routes have more than {_MAX_STEPS} steps")
            self._routes[text, layers] = program.to_route(layers)
        return self._routes[text, layers]


def _encode_draw(draw: Draw) -> dict[str, Any]:
    route, program = draw.proposal.route, draw.proposal.program
    return {
        "round": draw.round,
        "layers": route.layers,
        "route": str(route),
        "program": None if program is None else str(program),
        "outcome": _encode_outcome(draw.outcome),
    }


def _encode_outcome(outcome: Outcome) -> Any:
    if isinstance(outcome, StoppedScore):
        return dataclasses.asdict(outcome)
    return [outcome.correct, outcome.total] if isinstance(outcome, Score) else outcome.reason


def _decode_outcome(value: Any) -> Outcome:
    if isinstance(value, dict):
        return StoppedScore(**value)
    return ScoringFailure(value) if isinstance(value, str) else Score(*value)
