"""The tensors of a checkpoint's files, unchanged or with one layer per step of a route.

Reading files instead of a loaded model keeps every stored value and needs no memory for the model.
"""

import math
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
    """One tensor of a checkpoint: its name and where it is stored."""

    name: str
    file: Path
    stored_name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape, start=_BYTES_PER_VALUE[self.dtype])

    def load(self) -> Any:
        """Load a copy as a torch tensor: a view would keep the file mapped."""
        from safetensors import safe_open

        with safe_open(self.file, framework="pt") as file:
            return file.get_tensor(self.stored_name).clone()


def list_copyable_tensors(folder: Path) -> list[StoredTensor]:
    """List the tensors of a folder's safetensors files; reject dtypes that cannot be copied."""
    tensors = list_checkpoint_tensors(folder)
    if unsupported := [tensor for tensor in tensors if tensor.dtype not in _BYTES_PER_VALUE]:
        raise ExportError(
            f"{unsupported[0].name} has dtype {unsupported[0].dtype}, but --format hf and --format gguf write"
            f" {', '.join(_BYTES_PER_VALUE)} only;"
            " use --format routed"
        )
    return tensors


def list_checkpoint_tensors(folder: Path) -> list[StoredTensor]:
    """List the tensors of a folder's safetensors files; reject damaged or missing files."""
    from safetensors import SafetensorError, safe_open

    tensors: list[StoredTensor] = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 no mapping
                    part = file.get_slice(name)
                    tensors.append(StoredTensor(name, path, name, tuple(part.get_shape()), part.get_dtype()))
        except (SafetensorError, OSError) as error:
            raise ExportError(f"{path} cannot be read: {error}; fetch or convert the model again") from None
    if not tensors:
        raise ExportError(
            f"{folder} holds no weights in safetensors files; fetch the model again, or convert pickled weights:"
            " load them with transformers where you trust them, and save_pretrained"
        )
    return tensors


def unroll_tensors(tensors: list[StoredTensor], route: Route) -> Iterator[StoredTensor]:
    """The tensors of a model with one layer per step; a layer that is applied twice appears twice."""
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
