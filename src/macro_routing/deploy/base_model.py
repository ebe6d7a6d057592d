"""The model a route is exported with, its weights left on disk: where it came from, and what travels with it."""

from __future__ import annotations

import shutil
from pathlib import Path

from macro_routing.deploy.checkpoint_tensors import list_tensors
from macro_routing.errors import ExportError
from macro_routing.models.catalog import BUILT_IN_MODELS, MessageCallback, ignore_message
from macro_routing.models.frozen import LoadOptions
from macro_routing.models.metadata import ModelMetadata, read_model_metadata
from macro_routing.models.support import check_supported

_COMPANION_FILES = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model", "*.jinja"),
    *("generation_config.json", "LICENSE*", "NOTICE*"),
)
"""What belongs to a model whatever order its layers run in."""


def open_base_model(
    name: str, *, revision: str | None = None, report: MessageCallback = ignore_message
) -> ModelMetadata:
    """Find a model that can be routed, and whose weights can be read."""
    base = read_model_metadata(name, LoadOptions(revision=revision), report)
    check_supported(base.config)
    list_tensors(base.folder)
    return base


def get_hub_commit(base: ModelMetadata) -> str | None:
    """The commit of a model that lies in the hub's cache; None for models that only this machine has."""
    if base.name in BUILT_IN_MODELS or Path(base.name).exists() or base.folder.parent.name != "snapshots":
        return None
    return base.folder.name


def copy_companion_files(base: ModelMetadata, target: Path) -> None:
    """Copy tokenizer, generation settings and licence as they are."""
    for path in sorted({path for pattern in _COMPANION_FILES for path in base.folder.glob(pattern)}):
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def reject_quantized(base: ModelMetadata, target: str) -> None:
    """Refuse packed weights, whose settings name layers in ways that only their own library knows."""
    if getattr(base.config, "quantization_config", None) is not None:
        raise ExportError(
            f"{base.name} holds quantised weights, which --to {target} does not write;"
            " export the unquantised model, or use --to routed"
        )
