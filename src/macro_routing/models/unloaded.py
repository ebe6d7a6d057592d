"""A model known by name, configuration and identity, its weights left on disk, for engines that load them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.models.catalog import Report, locate, say_nothing
from macro_routing.models.frozen import LoadOptions, load_tokenizer, read_config
from macro_routing.models.identity import source_digests, weights_id
from macro_routing.models.support import text_config


@dataclass(frozen=True, eq=False)
class UnloadedModel:
    """What can be said about a model without loading its weights."""

    name: str
    folder: Path
    config: Any
    weights_id: str
    numerics_id: None = None
    """The engine that will run it decides the numerics."""

    @property
    def layers(self) -> int:
        """Number of layers, which routes for this model must be written for."""
        return int(text_config(self.config).num_hidden_layers)


def find_model(name: str, options: LoadOptions, report: Report = say_nothing) -> UnloadedModel:
    """Find a model named by built-in name, folder, GGUF file or hub id; its identity is that of the loaded model."""
    folder = locate(name, revision=options.revision, report=report)
    config = read_config(folder, name, options)
    tokenizer = load_tokenizer(folder, name, options)
    return UnloadedModel(name, folder, config, weights_id(config, tokenizer, source_digests(folder)))
