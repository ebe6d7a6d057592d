"""Load a route file for a model; no search code is imported."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macro_routing.errors import NotationError
from macro_routing.models.find_decoder import count_model_layers
from macro_routing.models.frozen import FrozenModel
from macro_routing.models.identity import (
    compute_numerics_id,
    compute_weights_id,
    digest_loaded_weights,
    digest_model_files,
)
from macro_routing.models.route_file_compatibility import IdentifiedModel, check_route_file_fits_model
from macro_routing.routes.mixture import RouteOrMixture
from macro_routing.routes.route_file import RouteFile, check_unchanged_since_run, is_route_file_text, parse_route_file


def load_route(path: str | Path, model: Any, *, any_model: bool = False) -> RouteOrMixture:
    """Load the route or mixture of a route file for a ``FrozenModel`` or a transformers model.

    A file for other weights is rejected unless ``any_model`` is true; other numerics give a warning.
    """
    route_file = read_route_file(path)
    return check_route_file_fits_model(
        route_file, _identify_model(model), str(path), report=_emit_warning, any_model=any_model
    )


def read_route_file(path: str | Path) -> RouteFile:
    """Read the route and its evidence; reject a damaged file, another version and other files."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise NotationError(f"cannot read the route file {path}: {error}") from None
    if not is_route_file_text(text):
        raise NotationError(
            f"{path} is not a route file, or its beginning is missing; a run's route.json is one,"
            " and parse_route(text, layers) parses routes in other notations"
        )
    check_unchanged_since_run(Path(path))
    try:
        return parse_route_file(text)
    except NotationError as error:
        raise NotationError(f"{path}: {error}") from None


def _emit_warning(message: str) -> None:
    warnings.warn(message.removeprefix("warning: "), stacklevel=4)  # the line that called load_route


# --- plain models -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TransformersModelIdentity:
    """The identities of a model that transformers has loaded."""

    name: str
    layers: int
    weights_id: str
    numerics_id: str


def _identify_model(model: Any) -> IdentifiedModel:
    if isinstance(model, FrozenModel):
        return model
    layers = count_model_layers(model)
    folder = _find_loaded_model_folder(model)
    if folder is None:
        name, tokenizer, sources = "the model in memory", None, digest_loaded_weights(model)
    else:
        name = str(model.config._name_or_path)  # noqa: SLF001 transformers has no public name for it
        tokenizer, sources = _load_tokenizer_or_none(folder), digest_model_files(folder)
    weights = compute_weights_id(model.config, tokenizer, sources)
    return _TransformersModelIdentity(
        name, layers, weights, compute_numerics_id(weights, model, tokenizer, _get_quantization(model))
    )


def _find_loaded_model_folder(model: Any) -> Path | None:
    """The folder that a model was loaded from, in the hub's cache for a hub id; None for a model in memory."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    name = getattr(model.config, "_name_or_path", "")
    if not name:
        return None
    if (Path(name) / "config.json").is_file():
        return Path(name)
    try:  # reads the cache only, never the network
        cached = try_to_load_from_cache(name, "config.json", revision=getattr(model.config, "_commit_hash", None))
    except HFValidationError:  # a folder that was moved
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _load_tokenizer_or_none(folder: Path) -> Any:
    """Load the tokenizer beside the weights, which is part of the identity; None if there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception:  # noqa: BLE001 without one the identity differs, and the file is rejected
        return None


def _get_quantization(model: Any) -> str | None:
    """As ``LoadOptions.quantization`` names it."""
    return next((kind for kind in ("4bit", "8bit") if getattr(model, f"is_loaded_in_{kind}", False)), None)
