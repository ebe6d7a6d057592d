"""Saved routers: a folder with their weights and a record that names the weights by digest."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import MacroError, ModelError
from macro_routing.files import write_atomically
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.support import get_text_config
from macro_routing.peers.router_network import StackedRouters
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.settings import build_settings

_FORMAT = "macro-routers/1"
_RECORD, _WEIGHTS = "routers.json", "routers.safetensors"


def get_hidden_size(frozen: FrozenModel) -> int:
    """Width of a hidden state."""
    return int(get_text_config(frozen.model.config).hidden_size)


def check_router_model(weights_id: str, frozen: FrozenModel) -> None:
    """Reject a model that the routers were not trained on: its states mean something else."""
    if weights_id != frozen.weights_id:
        raise ModelError(
            f"these routers were trained on another model than {frozen.name} (weights {weights_id[:12]},"
            f" not {frozen.weights_id[:12]}); train routers for this one"
        )


def save_routers(
    path: str | os.PathLike[str], routers: StackedRouters, *, settings: RouterSettings, **record: Any
) -> None:
    """Write weights and record into the folder ``path``."""
    from safetensors.torch import save

    folder = Path(path)
    if not folder.parent.is_dir():
        raise ModelError(f"the routers cannot be saved: there is no folder {folder.parent}")
    folder.mkdir(exist_ok=True)
    weights = save({name: value.detach().cpu().contiguous() for name, value in routers.state_dict().items()})
    full_record = {
        "format": _FORMAT,
        **record,
        "routers": routers.count,
        "width": routers.inner.shape[1],
        "settings": dataclasses.asdict(settings),
        "digest": hashlib.sha256(weights).hexdigest(),
    }
    write_atomically(folder / _WEIGHTS, weights)
    write_atomically(folder / _RECORD, json.dumps(full_record, indent=1) + "\n")


@dataclass(frozen=True, eq=False)
class SavedRouters:
    """The checked contents of a folder of routers; their shape is not checked yet."""

    folder: Path
    record: Mapping[str, Any]
    settings: RouterSettings
    weights: bytes
    frozen: FrozenModel

    def build_routers(self, count: int, classes: int) -> StackedRouters:
        """The routers, if they have the expected shape."""
        from safetensors.torch import load

        width = get_hidden_size(self.frozen)
        if self.record.get("routers") != count or self.record.get("width") != width:
            raise ModelError(
                f"{self.folder} holds {self.record.get('routers')!r} routers for states of width"
                f" {self.record.get('width')!r}; expected are {count} for width {width}"
            )
        routers = StackedRouters(count, width, classes, self.settings.hidden)
        try:
            routers.load_state_dict(load(self.weights), strict=True)
        except Exception as error:  # noqa: BLE001 a damaged file can fail anywhere in the libraries that read it
            raise ModelError(f"{self.folder / _WEIGHTS} does not hold these routers ({type(error).__name__})") from None
        return routers.to(self.frozen.model.device).requires_grad_(requires_grad=False)


def load_saved_routers(path: str | os.PathLike[str], kind: str, frozen: FrozenModel) -> SavedRouters:
    """Read and check a folder of routers; routers of another kind or model, and damaged ones, are rejected."""
    folder = Path(path)
    try:
        record = json.loads((folder / _RECORD).read_bytes())
        weights = (folder / _WEIGHTS).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"there are no saved routers at {folder} ({_RECORD} and {_WEIGHTS})") from None
    except ValueError:
        raise ModelError(f"{folder / _RECORD} is damaged: it is not JSON") from None
    record_format = record.get("format") if isinstance(record, dict) else record
    if record_format != _FORMAT:
        raise ModelError(f"{folder / _RECORD} has the format {record_format!r}; this version reads {_FORMAT!r}")
    if record.get("kind") != kind:
        raise ModelError(f"{folder} holds routers of the kind {record.get('kind')!r}, not {kind!r}")
    check_router_model(str(record.get("weights_id")), frozen)
    if hashlib.sha256(weights).hexdigest() != record.get("digest"):
        raise ModelError(f"{folder / _WEIGHTS} is damaged or not the file that {_RECORD} was written for")
    values = record.get("settings")
    try:
        settings = build_settings(RouterSettings, values if isinstance(values, dict) else {"settings": values}, _RECORD)
    except MacroError as error:
        raise ModelError(f"{folder} holds invalid routers: {error}") from None
    return SavedRouters(folder, record, settings, weights, frozen)
