"""Models whose weights are not loaded in this process: on disk for another engine, or loaded by workers alone.

The process that drives workers, perhaps on other machines, needs the tokenizer, the shape and the identity of the
model. The weights would take memory that a worker can use.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import ModelError
from macro_routing.models.catalog import MessageCallback, ignore_message, locate_model
from macro_routing.models.frozen import FrozenModel, LoadOptions, load_tokenizer, read_model_config
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
    config = read_model_config(folder, name, options)
    tokenizer = load_tokenizer(folder, name, options)
    return ModelMetadata(name, folder, config, compute_weights_id(config, tokenizer, digest_source_files(folder)))


@dataclass(frozen=True)
class RemoteModelInfo:
    """What a worker reports about the model it has loaded."""

    weights_id: str
    numerics_id: str
    device: str
    """Device type: cpu or cuda."""
    dtype: str
    fused_unsupported_reason: str | None
    """Why it cannot use the fused decoder; None where it can."""


@dataclass(frozen=True, eq=False)
class UnloadedModel:
    """Stands in for a loaded model; running it raises an error that explains why."""

    config: Any
    generation_config: Any
    device: Any
    dtype: Any
    fused_unsupported_reason: str | None

    def __getattr__(self, name: str) -> Any:
        """Raise: every other attribute needs the weights."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(
            "the model is loaded by the workers alone, but this needs it in the search's own process;"
            " run it without workers (--workers 0)"
        )


@dataclass(frozen=True, eq=False)
class RemoteModel(FrozenModel):
    """A frozen model whose weights only workers have."""

    @property
    def layers(self) -> int:
        """Number of layers, by the configuration."""
        return int(get_text_config(self.model.config).num_hidden_layers)


def make_remote_model(
    name: str, options: LoadOptions, info: RemoteModelInfo, report: MessageCallback = ignore_message
) -> RemoteModel:
    """Make the stand-in for the model ``name`` that workers have loaded."""
    import torch
    from transformers import GenerationConfig

    folder = locate_model(name, revision=options.revision, report=report)
    config = read_model_config(folder, name, options)
    try:
        generation = GenerationConfig.from_pretrained(folder)
    except OSError:  # without such a file the configuration holds the values
        generation = GenerationConfig.from_model_config(config)
    model = UnloadedModel(
        config, generation, torch.device(info.device), getattr(torch, info.dtype), info.fused_unsupported_reason
    )
    return RemoteModel(name, model, load_tokenizer(folder, name, options), info.weights_id, info.numerics_id)
