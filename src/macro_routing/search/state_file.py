"""A search's state as one file: arrays and JSON in an npz archive, written whole or not at all; never pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from macro_routing.errors import MacroError, SearchError
from macro_routing.files import open_atomically
from macro_routing.routes.paper_notation import parse_program
from macro_routing.search.searcher import Draw, Failure, Outcome, Proposal, Score, SearchState, Stopped

_FORMAT = "macro-search-state/2"
_READABLE = ("macro-search-state/1", _FORMAT)
"""Version 1 knew no stopped draws."""


def save_state(path: str | os.PathLike[str], state: SearchState) -> None:
    """Write ``state`` to ``path``; an interrupted write leaves the old file as it was."""
    record = {
        "format": _FORMAT,
        "identity": state.identity,
        "rounds": state.rounds,
        "stopped": state.stopped,
        "draws": [_draw_to_json(draw) for draw in state.draws],
    }
    arrays: dict[str, Any] = {f"array.{name}": values for name, values in state.arrays.items()}
    path = Path(path)
    if not path.parent.is_dir():
        raise SearchError(f"the search cannot be saved: there is no folder {path.parent}")
    with open_atomically(path) as file:
        np.savez_compressed(file, record=np.frombuffer(json.dumps(record).encode(), np.uint8), **arrays)


def load_state(path: str | os.PathLike[str]) -> SearchState:
    """Read a state; anything but a sound state file is refused by name."""
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            contents = {name: archive[name] for name in archive.files}
        record = json.loads(contents.pop("record").tobytes())
        return _state_from(record, {name.removeprefix("array."): values for name, values in contents.items()})
    except FileNotFoundError:
        raise SearchError(f"there is no saved search at {path}") from None
    except MacroError as error:
        raise SearchError(f"{path} is not a sound saved search: {error}") from None
    except Exception as error:  # noqa: BLE001 a damaged archive can fail in any of the libraries that read it
        raise SearchError(f"{path} is not a sound saved search ({type(error).__name__})") from None


def _state_from(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> SearchState:
    if record.get("format") not in _READABLE:
        raise SearchError(f"its format is {record.get('format')!r}, not {_FORMAT!r}")
    draws = tuple(_draw_from_json(draw) for draw in record["draws"])
    rounds, stopped = record["rounds"], record["stopped"]
    if not isinstance(rounds, int) or rounds < 0 or not isinstance(stopped, bool):
        raise SearchError(f"it claims {rounds!r} rounds")
    if {draw.round for draw in draws} != set(range(rounds)):
        raise SearchError(f"it claims {rounds} rounds, but its draws tell otherwise")
    return SearchState(record["identity"], rounds, draws, arrays, stopped)


def _draw_to_json(draw: Draw) -> dict[str, Any]:
    route, program, outcome = draw.proposal.route, draw.proposal.program, draw.outcome
    return {
        "round": draw.round,
        "layers": route.layers,
        "route": str(route),
        "program": None if program is None else str(program),
        "outcome": _outcome_to_json(outcome),
    }


def _outcome_to_json(outcome: Outcome) -> Any:
    if isinstance(outcome, Stopped):
        return {"correct": outcome.correct, "scored": outcome.scored, "total": outcome.total}
    return [outcome.correct, outcome.total] if isinstance(outcome, Score) else outcome.reason


def _outcome_from_json(value: Any) -> Outcome:
    if isinstance(value, dict):
        return Stopped(**value)
    return Failure(value) if isinstance(value, str) else Score(*value)


def _draw_from_json(value: Mapping[str, Any]) -> Draw:
    route = parse_program(value["route"]).expand(value["layers"])
    program = None if value["program"] is None else parse_program(value["program"])
    return Draw(value["round"], Proposal(route, program), _outcome_from_json(value["outcome"]))
