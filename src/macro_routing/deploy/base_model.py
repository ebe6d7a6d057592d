"""The base model of an export, with its weights on disk: its origin, and the files to copy with it."""

import shutil
from pathlib import Path

from macro_routing.deploy.checkpoint_tensors import list_tensors
from macro_routing.errors import ExportError
from macro_routing.models.catalog import BUILT_IN_MODELS, MessageCallback, ignore_message
from macro_routing.models.frozen import LoadOptions
from macro_routing.models.metadata import ModelMetadata, read_model_metadata
from macro_routing.models.support import check_supported
from macro_routing.routes.route import Route

_COMPANION_FILES = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model", "*.jinja"),
    *("generation_config.json", "LICENSE*", "NOTICE*"),
)
"""Files that do not depend on the order of layers."""


def open_base_model(
    name: str, *, revision: str | None = None, report: MessageCallback = ignore_message
) -> ModelMetadata:
    """Open a model that can be routed and whose weights can be read."""
    base = read_model_metadata(name, LoadOptions(revision=revision), report)
    check_supported(base.config)
    list_tensors(base.folder)
    return base


def get_hub_commit(base: ModelMetadata) -> str | None:
    """The commit of a model in the hub's cache; None for a local model."""
    if base.name in BUILT_IN_MODELS or Path(base.name).exists() or base.folder.parent.name != "snapshots":
        return None
    return base.folder.name


def copy_companion_files(base: ModelMetadata, target: Path) -> None:
    """Copy tokenizer, generation settings and licence unchanged."""
    for path in sorted({path for pattern in _COMPANION_FILES for path in base.folder.glob(pattern)}):
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def reject_quantized(base: ModelMetadata, target: str) -> None:
    """Reject quantized weights, whose settings refer to layers in a form that only their library knows."""
    if getattr(base.config, "quantization_config", None) is not None:
        raise ExportError(
            f"{base.name} has quantized weights, which --to {target} does not write;"
            " export the unquantized model, or use --to routed"
        )


def reject_adds(route: Route, target: str) -> None:
    """Reject a route with adds, name the steps, and say where it can run."""
    adds = [f"step {number} ({step})" for number, step in enumerate(route.steps, 1) if step.add is not None]
    if adds:
        shown = ", ".join(adds[:4]) + (f" and {len(adds) - 4} more" if len(adds) > 4 else "")
        raise ExportError(
            f"--to {target} cannot express adds, and this route has them at {shown};"
            " use --to routed, which runs them in transformers, or `macro serve`;"
            " `macro search --no-adds` finds routes without any"
        )
