"""The tensors of a checkpoint as its files hold them, and the same with one layer per step of a route.

Working on files instead of a loaded model keeps every number as it is stored and needs no memory for the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from macro_routing.errors import ExportError
from macro_routing.routes.route import Route

_LAYER_TENSOR = re.compile(r"(?P<before>(?:model\.)?layers\.)(?P<layer>[0-9]+)(?P<after>\..+)")
_BYTES_PER_VALUE = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint: what it is called, and where its numbers lie."""

    name: str
    file: Path
    stored_name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Bytes."""
        count = _BYTES_PER_VALUE[self.dtype]
        for length in self.shape:
            count *= length
        return count

    def load(self) -> Any:
        """The numbers, as a torch tensor of its own: one that still lay in the file would keep it mapped, each anew."""
        from safetensors import safe_open

        with safe_open(self.file, framework="pt") as file:
            return file.get_tensor(self.stored_name).clone()


def list_copyable_tensors(folder: Path) -> list[StoredTensor]:
    """All tensors in a folder's safetensors files, which must be of a kind that can be copied one by one."""
    found = list_tensors(folder)
    if odd := [tensor for tensor in found if tensor.dtype not in _BYTES_PER_VALUE]:
        raise ExportError(
            f"{odd[0].name} is stored as {odd[0].dtype}, but only {', '.join(_BYTES_PER_VALUE)} can be written;"
            " use --to routed"
        )
    return found


def list_tensors(folder: Path) -> list[StoredTensor]:
    """All tensors in a folder's safetensors files, of whatever kind; files that are damaged or missing are refused."""
    from safetensors import SafetensorError, safe_open

    found: list[StoredTensor] = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 no mapping
                    part = file.get_slice(name)
                    found.append(StoredTensor(name, path, name, tuple(part.get_shape()), part.get_dtype()))
        except (SafetensorError, OSError) as error:
            raise ExportError(f"{path} cannot be read: {error}; fetch or convert the model again") from None
    if not found:
        raise ExportError(
            f"{folder} holds no weights in safetensors files; fetch the model again, or convert pickled weights:"
            " load them with transformers where you trust them, and save_pretrained"
        )
    return found


def unroll_tensors(tensors: list[StoredTensor], route: Route) -> Iterator[StoredTensor]:
    """The tensors of a model with one layer per step; a layer that is applied twice is there twice."""
    layers: dict[int, list[tuple[str, str, StoredTensor]]] = {}
    for tensor in tensors:
        match = _LAYER_TENSOR.fullmatch(tensor.name)
        if match is None:
            yield tensor
        else:
            layers.setdefault(int(match["layer"]), []).append((match["before"], match["after"], tensor))
    if missing := sorted({step.layer for step in route.steps} - set(layers)):
        raise ExportError(f"the model's files hold no tensors of layer {missing[0]}; fetch or convert it again")
    for number, step in enumerate(route.steps):
        for before, after, tensor in layers[step.layer]:
            yield replace(tensor, name=f"{before}{number}{after}")
