"""A search's state as one file: arrays and JSON in an npz archive, written whole or not at all; never pickle."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from macro_routing.errors import MacroError, SearchError
from macro_routing.routes.text import parse_program
from macro_routing.search.searcher import Draw, Failure, Outcome, Proposal, Score, SearchState

_FORMAT = "macro-search-state/1"


def save_state(path: Path, state: SearchState) -> None:
    """Write ``state`` to ``path``; an interrupted write leaves the old file as it was."""
    record = {
        "format": _FORMAT,
        "identity": state.identity,
        "rounds": state.rounds,
        "stopped": state.stopped,
        "draws": [_draw_to_json(draw) for draw in state.draws],
    }
    arrays: dict[str, Any] = {f"array.{name}": values for name, values in state.arrays.items()}
    unfinished = path.with_name(f"{path.name}.unfinished")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, record=np.frombuffer(json.dumps(record).encode(), np.uint8), **arrays)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load_state(path: Path) -> SearchState:
    """Read a state; anything but a sound state file is refused by name."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            contents = {name: archive[name] for name in archive.files}
        record = json.loads(contents.pop("record").tobytes())
        return _state_from(record, {name.removeprefix("array."): values for name, values in contents.items()})
    except FileNotFoundError:
        raise SearchError(f"there is no saved search at {path}") from None
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
        MacroError,
    ) as error:
        raise SearchError(f"{path} is not a sound saved search: {error}") from None


def _state_from(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> SearchState:
    if record.get("format") != _FORMAT:
        raise SearchError(f"its format is {record.get('format')!r}, not {_FORMAT!r}")
    draws = tuple(_draw_from_json(draw) for draw in record["draws"])
    return SearchState(record["identity"], record["rounds"], draws, arrays, record["stopped"])


def _draw_to_json(draw: Draw) -> dict[str, Any]:
    route, program, outcome = draw.proposal.route, draw.proposal.program, draw.outcome
    return {
        "round": draw.round,
        "layers": route.layers,
        "route": str(route),
        "program": None if program is None else str(program),
        "outcome": [outcome.correct, outcome.total] if isinstance(outcome, Score) else outcome.reason,
    }


def _draw_from_json(value: Mapping[str, Any]) -> Draw:
    route = parse_program(value["route"]).expand(value["layers"])
    program = None if value["program"] is None else parse_program(value["program"])
    answer = value["outcome"]
    outcome: Outcome = Failure(answer) if isinstance(answer, str) else Score(*answer)
    return Draw(value["round"], Proposal(route, program), outcome)
