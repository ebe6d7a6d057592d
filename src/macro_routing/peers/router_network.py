"""The router networks of Dr.LLM: what a router sees of a prompt, how it decides, and the files of saved routers.

A router sees the hidden states of a prompt as the means of a few windows. Its decision is one of several classes.
Saved routers are a folder with their weights and a record that names the weights by digest.
"""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import nn

from macro_routing.errors import MacroError, ModelError
from macro_routing.files import write_atomically
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.support import get_text_config
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.settings import build_settings

_FORMAT = "macro-routers/1"
_RECORD, _WEIGHTS = "routers.json", "routers.safetensors"


def pool_windows(states: Sequence[torch.Tensor], windows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean states ``[prompts, windows, width]`` of the windows of several prompts, and ``[prompts, windows]`` weights.

    ``states`` are ``[tokens, width]`` each. A prompt has ``min(windows, tokens)`` windows that differ by at most one
    token, longer ones first; means are in float32. The padding windows of short prompts have weight 0. All windows are
    summed in one call: thousands of prompts at dozens of layers would be millions of small sums.
    """
    tokens = np.array([len(state) for state in states])[:, None]
    count = np.minimum(windows, tokens)
    index = np.arange(windows)
    sizes = np.where(index < count, tokens // count + (index < tokens % count), 0)
    device = states[0].device
    lengths = torch.from_numpy(sizes.ravel()).to(device)
    # Lengths are not checked: that would synchronize with the device.
    sums = torch.segment_reduce(torch.cat(list(states)).float(), "sum", lengths=lengths, axis=0, unsafe=True)
    pooled = sums / lengths.clamp(min=1)[:, None]
    weights = torch.from_numpy(np.where(index < count, 1 / count, 0.0)).float()
    return pooled.reshape(len(states), windows, -1), weights.to(device)


class StackedRouters(nn.Module):
    """Several routers of one shape, with stacked weights so that all of them can be trained in one pass.

    Each is Linear → GELU (tanh form) → Linear on every window, and the weighted mean of the windows' logits. They
    compute in float32 whatever the model does: they are tiny, and their decisions are discrete.
    """

    def __init__(
        self, count: int, width: int, classes: int, hidden: int, generator: torch.Generator | None = None
    ) -> None:
        """Create ``count`` routers with torch's default initialization of linear layers."""
        super().__init__()

        def make_uniformly_initialized_parameter(*shape: int, inputs: int) -> nn.Parameter:
            bound = 1 / math.sqrt(inputs)
            return nn.Parameter(torch.empty(*shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator))

        self.inner = make_uniformly_initialized_parameter(count, width, hidden, inputs=width)
        self.inner_bias = make_uniformly_initialized_parameter(count, hidden, inputs=width)
        self.outer = make_uniformly_initialized_parameter(count, hidden, classes, inputs=hidden)
        self.outer_bias = make_uniformly_initialized_parameter(count, classes, inputs=hidden)

    @property
    def router_count(self) -> int:
        """Number of routers."""
        return len(self.inner)

    def forward(self, pooled: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Logits ``[prompts, routers, classes]`` of ``[prompts, routers, windows, width]``, each router its own."""
        return self._compute_router_logits(pooled, weights, slice(None))

    def forward_one_router(self, number: int, pooled: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Logits ``[prompts, classes]`` of one router for ``[prompts, windows, width]``."""
        return self._compute_router_logits(pooled[:, None], weights, slice(number, number + 1))[:, 0]

    def _compute_router_logits(self, pooled: torch.Tensor, weights: torch.Tensor, routers: slice) -> torch.Tensor:
        inner = torch.einsum("prwd,rdh->prwh", pooled, self.inner[routers]) + self.inner_bias[routers, None]
        active = nn.functional.gelu(inner, approximate="tanh")
        outer = torch.einsum("prwh,rhc->prwc", active, self.outer[routers]) + self.outer_bias[routers, None]
        return (outer * weights[:, None, :, None]).sum(dim=2)


def compute_router_logits(
    routers: StackedRouters, number: int, states: Sequence[torch.Tensor], windows: int
) -> torch.Tensor:
    """Logits ``[prompts, classes]`` of router ``number`` for states on any device."""
    pooled, weights = pool_windows(states, windows)
    device = routers.inner.device
    return routers.forward_one_router(number, pooled.to(device), weights.to(device))


# --- files --------------------------------------------------------------------------------------------------------


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
    folder = Path(path)
    if not folder.parent.is_dir():
        raise ModelError(f"the routers cannot be saved: there is no folder {folder.parent}")
    folder.mkdir(exist_ok=True)
    weights = save({name: value.detach().cpu().contiguous() for name, value in routers.state_dict().items()})
    full_record = {
        "format": _FORMAT,
        **record,
        "routers": routers.router_count,
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

    def restore_saved_routers(self, count: int, classes: int) -> StackedRouters:
        """The routers, if they have the expected shape."""
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
