"""What all exports share: the base model on disk, the files to copy with it, an output that is complete or absent."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from macro_routing.deploy.checkpoint_tensors import list_checkpoint_tensors, unroll_tensors
from macro_routing.errors import ExportError
from macro_routing.files import atomic_output, describe_os_error
from macro_routing.models.built_in import BUILT_IN_MODELS
from macro_routing.models.catalog import MessageCallback, ignore_message
from macro_routing.models.frozen import ModelMetadata, read_model_metadata
from macro_routing.models.load_options import LoadOptions
from macro_routing.models.support import check_model_can_be_routed
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.routes.route import Route

_COMPANION_FILES = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model", "*.jinja"),
    *("generation_config.json", "LICENSE*", "NOTICE*"),
)
"""Files that do not depend on the order of layers."""
_USUAL_LENGTH = 4
"""Longer routes, in multiples of the model's layers, are hardly meant: a search allows the layers and 12 more."""
_SPARE_BYTES = 16 << 20
"""Space for tokenizer, model card and the file system's own needs."""


def open_exportable_model(
    name: str, *, revision: str | None = None, report: MessageCallback = ignore_message
) -> ModelMetadata:
    """Open a model that can be routed and whose weights can be read."""
    base = read_model_metadata(name, LoadOptions(revision=revision), report)
    check_model_can_be_routed(base.config)
    list_checkpoint_tensors(base.folder)
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


def reject_unexportable(base: ModelMetadata, route: Route, target: str) -> None:
    """Reject a route with adds, and quantized weights, whose settings only their library can write."""
    adds = [f"step {number} ({step})" for number, step in enumerate(route.steps, 1) if step.add is not None]
    if adds:
        shown = ", ".join(adds[:4]) + (f" and {len(adds) - 4} more" if len(adds) > 4 else "")
        raise ExportError(
            f"--format {target} cannot express adds, and this route has them at {shown};"
            " use --format routed, which runs them in transformers, or `macro serve`;"
            " `macro search --no-adds` finds routes without any"
        )
    if getattr(base.config, "quantization_config", None) is not None:
        raise ExportError(
            f"{base.name} has quantized weights, which --format {target} does not write;"
            " export the unquantized model, or use --format routed"
        )


def describe_long_route(base: ModelMetadata, route: RouteOrMixture, *, copies_layers: bool) -> str:
    """What a route of many times the model's layers costs; empty for usual ones.

    ``copies_layers``: the target stores a layer that is applied twice twice.
    """
    times = route.length / base.layers
    if times <= _USUAL_LENGTH:
        return ""
    size = ""
    if copies_layers:
        tensors = list_checkpoint_tensors(base.folder)
        once, twice = (
            sum(tensor.size_bytes for tensor in unroll_tensors(tensors, Route.from_layers(layers, base.layers)))
            for layers in ([0], [0, 0])
        )
        size = (
            f", and a checkpoint with all of them has about {_format_size(once + (route.length - 1) * (twice - once))}"
        )
    return (
        f"the route applies {route.length:,} layers, {times:,.0f} times the model's, so every token takes as much"
        f" longer{size}"
    )


# --- output -------------------------------------------------------------------------------------------------------


@contextmanager
def open_export_output(out: Path, n_bytes: int) -> Iterator[Path]:
    """Yield a temporary path for a file or folder of about ``n_bytes``, which is moved to ``out`` at the end."""
    try:
        check_output_not_existing(out)
        needed = n_bytes + _SPARE_BYTES
        free = shutil.disk_usage(next(folder for folder in out.absolute().parents if folder.exists())).free
        if free < needed:
            raise ExportError(
                f"{out} needs {_format_size(needed)}, but only {_format_size(free)} are free there; nothing was"
                " written: free some space, or choose another disk with --out"
            )
        with atomic_output(out) as temporary:
            yield temporary
            check_output_not_existing(out)
    except OSError as error:
        raise ExportError(
            f"{str(out)[:200]} cannot be written: {describe_os_error(error)}; choose another path with --out"
        ) from None


def check_output_not_existing(out: Path) -> None:
    """Reject a place where something is."""
    if out.exists() or out.is_symlink():
        raise ExportError(f"{out} exists already; remove it or choose another path with --out")


def _format_size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"
