"""The routers of Dr.LLM: before every layer a small network decides whether it is skipped, executed or repeated.

A decision is made once per prompt, while the prompt runs through the model. The answer is then written by the ordinary
engine with the decided route, so every visit of a layer has keys and values of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from macro_routing.engine.batching import Tokens, batch_by_length, compute_position_ids, pad_left
from macro_routing.errors import MacroError, ModelError
from macro_routing.files import write_atomically
from macro_routing.models.decoder import get_decoder
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.layer_inputs import compute_layer_inputs
from macro_routing.models.support import get_text_config
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.routes.route import Route
from macro_routing.search.tree_actions import route_from_counts
from macro_routing.settings import build_settings

MOST_APPLICATIONS = 2
"""A layer is skipped (0), executed (1) or repeated (2): the classes of a layer's router are these counts."""
_MOST_TOKENS = {"cpu": 8_192, "cuda": 16_384}


# --- what a router sees -------------------------------------------------------------------------------------------


def pool_prompts(states: Sequence[torch.Tensor], windows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The windows of several prompts' ``[tokens, width]`` and each window's share in its prompt's mean.

    Of each of ``min(windows, tokens)`` windows the mean, in float32: ``[prompts, windows, width]``. A prompt's windows
    differ by at most one token; the longer ones come first. What fills the rows of prompts with few tokens has no
    share. All windows are summed in one go: thousands of prompts at dozens of layers would be millions of small sums.
    """
    tokens = np.array([len(state) for state in states])[:, None]
    number = np.minimum(windows, tokens)
    place = np.arange(windows)
    sizes = np.where(place < number, tokens // number + (place < tokens % number), 0)
    device = states[0].device
    lengths = torch.from_numpy(sizes.ravel()).to(device)
    # Lengths need no check, for which the device would have to be waited for.
    sums = torch.segment_reduce(torch.cat(list(states)).float(), "sum", lengths=lengths, axis=0, unsafe=True)
    pooled = sums / lengths.clamp(min=1)[:, None]
    shares = torch.from_numpy(np.where(place < number, 1 / number, 0.0)).float()
    return pooled.reshape(len(states), windows, -1), shares.to(device)


class WindowRouters(nn.Module):
    """Several routers of one shape, their weights stacked so that all of them can be trained in one pass.

    Each is Linear → GELU (tanh form) → Linear on every window, and the mean of the windows' logits. They compute in
    float32 whatever the model does: they are tiny, and their decisions are discrete.
    """

    def __init__(
        self, count: int, width: int, classes: int, hidden: int, generator: torch.Generator | None = None
    ) -> None:
        """``count`` routers with the weights that torch would give to their linear layers."""
        super().__init__()

        def drawn(*shape: int, inputs: int) -> nn.Parameter:
            bound = 1 / math.sqrt(inputs)
            return nn.Parameter(torch.empty(*shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator))

        self.inner = drawn(count, width, hidden, inputs=width)
        self.inner_bias = drawn(count, hidden, inputs=width)
        self.outer = drawn(count, hidden, classes, inputs=hidden)
        self.outer_bias = drawn(count, classes, inputs=hidden)

    @property
    def count(self) -> int:
        """How many routers these are."""
        return len(self.inner)

    def forward(self, pooled: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Logits ``[prompts, routers, classes]`` of ``[prompts, routers, windows, width]``, each router its own."""
        return self._logits(pooled, shares, slice(None))

    def one(self, number: int, pooled: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Logits ``[prompts, classes]`` of one router for ``[prompts, windows, width]``."""
        return self._logits(pooled[:, None], shares, slice(number, number + 1))[:, 0]

    def _logits(self, pooled: torch.Tensor, shares: torch.Tensor, which: slice) -> torch.Tensor:
        inner = torch.einsum("prwd,rdh->prwh", pooled, self.inner[which]) + self.inner_bias[which, None]
        active = nn.functional.gelu(inner, approximate="tanh")
        outer = torch.einsum("prwh,rhc->prwc", active, self.outer[which]) + self.outer_bias[which, None]
        return (outer * shares[:, None, :, None]).sum(dim=2)


# --- prompts on their way through the model -----------------------------------------------------------------------


def tokens_at_once(model: Any) -> int:
    """Tokens with padding that run through the model together, unless told otherwise."""
    return _MOST_TOKENS.get(model.device.type, _MOST_TOKENS["cpu"])


_KNOWN_ROWS = 4
"""Sets of rows whose masks are kept: at one layer some rows are executed and fewer repeated, and the next is alike."""


class PaddedPrompts:
    """Prompts side by side, and layers that can be run on any of them. Nothing is cached."""

    def __init__(self, model: Any, prompts: Sequence[Tokens]) -> None:
        """Pad and embed the prompts."""
        self._model = model
        self._lengths = [len(prompt) for prompt in prompts]
        self._ids, self._mask = pad_left(prompts, model.device)
        given = compute_layer_inputs(model, self._ids, self._mask, compute_position_ids(self._mask), cached=0)
        self.embedded = given.embedded
        """``[prompts, longest, width]``, padding first."""
        self._arguments = {tuple(range(len(prompts))): given.arguments}

    @torch.no_grad()
    def apply(self, layer: int, rows: Sequence[int], state: torch.Tensor) -> torch.Tensor:
        """``state`` after ``layer`` was applied to ``rows``; the other rows stay as they are."""
        if not rows:
            return state
        everyone = len(rows) == len(state)
        hidden = state if everyone else state[list(rows)]
        output = get_decoder(self._model).layers[layer](hidden, **self._arguments_of(tuple(rows))[layer])
        output = output[0] if isinstance(output, tuple) else output
        return output if everyone else with_rows(state, rows, output)

    def without_padding(self, state: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """The state ``[tokens, width]`` of each of ``rows``."""
        return [state[row, -self._lengths[row] :] for row in rows]

    def _arguments_of(self, rows: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
        """What layers are given for these rows alone, asked of the model, which alone knows what belongs to a row."""
        if rows not in self._arguments:
            if len(self._arguments) == _KNOWN_ROWS:
                self._arguments.pop(next(iter(self._arguments)))
            ids, mask = self._ids[list(rows)], self._mask[list(rows)]
            self._arguments[rows] = compute_layer_inputs(
                self._model, ids, mask, compute_position_ids(mask), cached=0
            ).arguments
        return self._arguments[rows]


def with_rows(state: torch.Tensor, rows: Sequence[int], values: torch.Tensor) -> torch.Tensor:
    """A copy of ``state`` in which ``rows`` have other values."""
    changed = state.clone()
    changed[list(rows)] = values.to(state.device)
    return changed


Choose = Callable[[list[int], int, list[torch.Tensor]], list[int]]
"""Prompts by their places, a layer and the states entering it → how often each prompt's pass applies the layer."""


def walk_layers(
    frozen: FrozenModel, prompts: Sequence[Tokens], choose: Choose, *, most_tokens: int | None = None
) -> list[tuple[int, ...]]:
    """How often each layer was applied to each prompt, when ``choose`` decided while the prompts ran.

    What ``choose`` is shown at a layer follows from what it chose before. A pass that has applied no layer at all
    applies the last one.
    """
    check_prompts(prompts)
    counts: list[list[int]] = [[] for _ in prompts]
    for places in batch_by_length([len(prompt) for prompt in prompts], most_tokens or tokens_at_once(frozen.model)):
        batch = PaddedPrompts(frozen.model, [prompts[place] for place in places])
        state = batch.embedded
        for layer in range(frozen.layers):
            chosen = choose(places, layer, batch.without_padding(state, range(len(places))))
            for place, count in zip(places, chosen, strict=True):
                nothing_yet = layer == frozen.layers - 1 and not any(counts[place])
                counts[place].append(max(count, 1) if nothing_yet else count)
            if layer == frozen.layers - 1:
                break  # nobody looks at what leaves the last layer
            for times in range(1, MOST_APPLICATIONS + 1):
                rows = [row for row, place in enumerate(places) if counts[place][layer] >= times]
                state = batch.apply(layer, rows, state)
    return [tuple(each) for each in counts]


def check_prompts(prompts: Sequence[Tokens]) -> None:
    """Refuse prompts without tokens: there is no state to look at."""
    for number, prompt in enumerate(prompts, 1):
        if not prompt:
            raise ModelError(f"prompt {number} has no tokens, so a router has nothing to decide by")


# --- one router per layer -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LayerRouters:
    """A router for every layer of one model."""

    routers: WindowRouters
    settings: RouterSettings
    weights_id: str
    """The model that they were trained on."""

    def decide(self, frozen: FrozenModel, prompts: Sequence[Tokens], *, most_tokens: int | None = None) -> list[Route]:
        """The route of every prompt, decided layer by layer while the prompts run through the model once."""
        check_same_model(self.weights_id, frozen)

        def choose(_places: list[int], layer: int, states: list[torch.Tensor]) -> list[int]:
            return [int(count) for count in self.logits(layer, states).argmax(dim=-1).tolist()]

        return [route_from_counts(counts) for counts in walk_layers(frozen, prompts, choose, most_tokens=most_tokens)]

    @torch.no_grad()
    def logits(self, layer: int, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits ``[prompts, 3]`` for the states ``[tokens, width]`` entering ``layer``."""
        return look(self.routers, layer, states, self.settings.windows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the routers into the folder ``path``."""
        write_routers(path, self.routers, kind="layers", settings=self.settings, weights_id=self.weights_id)

    @classmethod
    def load(cls, path: str | os.PathLike[str], frozen: FrozenModel) -> LayerRouters:
        """Read the routers of ``frozen``; those of another model are refused."""
        stored = read_routers(path, "layers", frozen)
        return cls(stored.routers(frozen.layers, MOST_APPLICATIONS + 1), stored.settings, frozen.weights_id)


def look(routers: WindowRouters, number: int, states: Sequence[torch.Tensor], windows: int) -> torch.Tensor:
    """Logits ``[prompts, classes]`` of router ``number``, wherever on the model's devices the states are."""
    pooled, shares = pool_prompts(states, windows)
    device = routers.inner.device
    return routers.one(number, pooled.to(device), shares.to(device))


def state_width(frozen: FrozenModel) -> int:
    """Width of a hidden state."""
    return int(get_text_config(frozen.model.config).hidden_size)


def check_same_model(weights_id: str, frozen: FrozenModel) -> None:
    """Refuse a model that the routers were not trained on: its states mean something else."""
    if weights_id != frozen.weights_id:
        raise ModelError(
            f"these routers were trained on another model than {frozen.name} (weights {weights_id[:12]},"
            f" not {frozen.weights_id[:12]}); train routers for this one"
        )


# --- files --------------------------------------------------------------------------------------------------------


_FORMAT = "macro-routers/1"
_RECORD, _WEIGHTS = "routers.json", "routers.safetensors"


def write_routers(
    path: str | os.PathLike[str], routers: WindowRouters, *, settings: RouterSettings, **record: Any
) -> None:
    """Write a folder of weights and a record that names them by their digest, so the two cannot be mixed up."""
    from safetensors.torch import save

    folder = Path(path)
    if not folder.parent.is_dir():
        raise ModelError(f"the routers cannot be saved: there is no folder {folder.parent}")
    folder.mkdir(exist_ok=True)
    weights = save({name: value.detach().cpu().contiguous() for name, value in routers.state_dict().items()})
    full = {
        "format": _FORMAT,
        **record,
        "routers": routers.count,
        "width": routers.inner.shape[1],
        "settings": dataclasses.asdict(settings),
        "digest": hashlib.sha256(weights).hexdigest(),
    }
    write_atomically(folder / _WEIGHTS, weights)
    write_atomically(folder / _RECORD, json.dumps(full, indent=1) + "\n")


@dataclass(frozen=True, eq=False)
class StoredRouters:
    """What a folder of routers holds, not yet in the shape of routers."""

    folder: Path
    record: Mapping[str, Any]
    settings: RouterSettings
    weights: bytes
    frozen: FrozenModel

    def routers(self, count: int, classes: int) -> WindowRouters:
        """The routers, when they have the shape that is expected of them."""
        from safetensors.torch import load

        width = state_width(self.frozen)
        if self.record.get("routers") != count or self.record.get("width") != width:
            raise ModelError(
                f"{self.folder} holds {self.record.get('routers')!r} routers for states of width"
                f" {self.record.get('width')!r}; expected are {count} for width {width}"
            )
        routers = WindowRouters(count, width, classes, self.settings.hidden)
        try:
            routers.load_state_dict(load(self.weights), strict=True)
        except Exception as error:  # noqa: BLE001 a damaged file can fail anywhere in the libraries that read it
            raise ModelError(f"{self.folder / _WEIGHTS} does not hold these routers ({type(error).__name__})") from None
        return routers.to(self.frozen.model.device).requires_grad_(requires_grad=False)


def read_routers(path: str | os.PathLike[str], kind: str, frozen: FrozenModel) -> StoredRouters:
    """Read and check a folder of routers; anything but sound routers of this kind and model is refused."""
    folder = Path(path)
    try:
        record = json.loads((folder / _RECORD).read_bytes())
        weights = (folder / _WEIGHTS).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"there are no saved routers at {folder} ({_RECORD} and {_WEIGHTS})") from None
    except ValueError:
        raise ModelError(f"{folder / _RECORD} is damaged: it is no JSON") from None
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        found = record.get("format") if isinstance(record, dict) else record
        raise ModelError(f"{folder / _RECORD} has the format {found!r}; this version reads {_FORMAT!r}")
    if record.get("kind") != kind:
        raise ModelError(f"{folder} holds routers of the kind {record.get('kind')!r}, not {kind!r}")
    check_same_model(str(record.get("weights_id")), frozen)
    if hashlib.sha256(weights).hexdigest() != record.get("digest"):
        raise ModelError(f"{folder / _WEIGHTS} is damaged or not the file that {_RECORD} was written for")
    values = record.get("settings")
    try:
        settings = build_settings(RouterSettings, values if isinstance(values, dict) else {"settings": values}, _RECORD)
    except MacroError as error:
        raise ModelError(f"{folder} holds no sound routers: {error}") from None
    return StoredRouters(folder, record, settings, weights, frozen)
