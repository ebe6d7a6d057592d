"""A model that others have loaded: what a search must know of it, without its weights.

With workers on GPUs, perhaps on other machines, the process that drives them needs the tokenizer, the shape and the
identity of the model; the weights would only take the room of a worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from macro_routing.errors import ModelError
from macro_routing.models.catalog import MessageCallback, ignore_message, locate_model
from macro_routing.models.frozen import FrozenModel, LoadOptions, load_tokenizer, read_config
from macro_routing.models.support import get_text_config


@dataclass(frozen=True)
class RemoteModelInfo:
    """What a worker says of the model it has loaded."""

    weights_id: str
    numerics_id: str
    device: str
    """Its kind: cpu or cuda."""
    dtype: str
    fused_unsupported_reason: str | None
    """Why it cannot use the fused decoder; None where it can."""


@dataclass(frozen=True, eq=False)
class RemoteModelStub:
    """Stands where a loaded model would; whoever wants to run it is told why that is not possible here."""

    config: Any
    generation_config: Any
    device: Any
    dtype: Any
    fused_unsupported_reason: str | None

    def __getattr__(self, name: str) -> Any:
        """Everything else belongs to a model with weights."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise _not_loaded_error()


@dataclass(frozen=True, eq=False)
class RemoteModel(FrozenModel):
    """A frozen model whose weights are elsewhere."""

    @property
    def layers(self) -> int:
        """Number of layers, by the configuration."""
        return int(get_text_config(self.model.config).num_hidden_layers)


def _not_loaded_error() -> ModelError:
    return ModelError(
        "the model is loaded by the workers alone, but this needs it in the search's own process;"
        " run it without workers (--workers 0)"
    )


def make_remote_model(
    name: str, options: LoadOptions, facts: RemoteModelInfo, report: MessageCallback = ignore_message
) -> RemoteModel:
    """The model ``name`` as workers have loaded it."""
    import torch
    from transformers import GenerationConfig

    folder = locate_model(name, revision=options.revision, report=report)
    config = read_config(folder, name, options)
    try:
        generation = GenerationConfig.from_pretrained(folder)
    except OSError:  # without a file of its own the configuration has what there is
        generation = GenerationConfig.from_model_config(config)
    model = RemoteModelStub(
        config, generation, torch.device(facts.device), getattr(torch, facts.dtype), facts.fused_unsupported_reason
    )
    return RemoteModel(name, model, load_tokenizer(folder, name, options), facts.weights_id, facts.numerics_id)
