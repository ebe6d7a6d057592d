"""Name, configuration and identity of a model whose weights stay on disk, for engines that load them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.models.catalog import MessageCallback, ignore_message, locate_model
from macro_routing.models.frozen import LoadOptions, load_tokenizer, read_config
from macro_routing.models.identity import compute_weights_id, digest_source_files
from macro_routing.models.support import get_text_config


@dataclass(frozen=True, eq=False)
class ModelMetadata:
    """What is known of a model without loading its weights."""

    name: str
    folder: Path
    config: Any
    weights_id: str
    numerics_id: None = None
    """The engine that will run it decides the numerics."""

    @property
    def layers(self) -> int:
        """Number of layers, which routes for this model must be written for."""
        return int(get_text_config(self.config).num_hidden_layers)


def read_model_metadata(name: str, options: LoadOptions, report: MessageCallback = ignore_message) -> ModelMetadata:
    """Read the metadata of a model by built-in name, folder, GGUF file or hub id; loading gives the same identity."""
    folder = locate_model(name, revision=options.revision, report=report)
    config = read_config(folder, name, options)
    tokenizer = load_tokenizer(folder, name, options)
    return ModelMetadata(name, folder, config, compute_weights_id(config, tokenizer, digest_source_files(folder)))
