"""``--format routed``: a checkpoint for transformers' ``from_pretrained``, adds included; weights referenced or stored.

Its folder holds a configuration with the route, the tokenizer, and either the files of the base model in ``base/`` or
its hub id and commit. After ``macro_routing.register()`` transformers loads the base model and applies the route.
"""

import importlib.util
import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from macro_routing.deploy.export_common import copy_companion_files, get_hub_commit, open_export_output
from macro_routing.deploy.model_card import write_model_card
from macro_routing.errors import ModelError, shorten_value
from macro_routing.models.frozen import ModelMetadata, read_model_metadata
from macro_routing.models.load_options import LoadOptions
from macro_routing.routes.mixture import RouteOrMixture, parse_program_or_mixture, require_question
from macro_routing.routes.route_file import RouteFile

MODEL_TYPE = "macro-routed"
_BASE_FOLDER = "base"
_WEIGHT_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "macro_source.json")


def write_routed_checkpoint(
    base: ModelMetadata, route: RouteOrMixture, evidence: RouteFile | None, out: Path, *, copy_weights: bool = False
) -> None:
    """Write the checkpoint; a hub model is referenced unless ``copy_weights`` is true, any other model is copied."""
    require_question(route)
    commit = None if copy_weights else get_hub_commit(base)
    files = [] if commit else [path for pattern in _WEIGHT_FILES for path in sorted(base.folder.glob(pattern))]
    with open_export_output(out, sum(path.stat().st_size for path in files)) as folder:
        folder.mkdir()
        copy_companion_files(base, folder)
        if commit is None:
            (folder / _BASE_FOLDER).mkdir()
            copy_companion_files(base, folder / _BASE_FOLDER)
            for path in files:
                shutil.copyfile(path, folder / _BASE_FOLDER / path.name)
        source = {"folder": _BASE_FOLDER} if commit is None else {"hub": base.name, "revision": commit}
        config = {
            "model_type": MODEL_TYPE,
            "architectures": ["RoutedForCausalLM"],
            "macro_route": str(route),
            "macro_layers": route.layers,
            "macro_base": source,
            "macro_weights_id": base.weights_id,
        }
        (folder / "config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        write_model_card(folder, base, route, evidence, needs_macro=True)


# --- loading ------------------------------------------------------------------------------------------------------


def register() -> None:
    """Let transformers load routed checkpoints with ``AutoModelForCausalLM.from_pretrained(folder)``."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise ModelError(f"{name} is not installed; models need it: pip install '.[models]' in the checkout")
    from transformers import AutoConfig, AutoModelForCausalLM

    config, model = _make_transformers_classes()
    AutoConfig.register(MODEL_TYPE, config, exist_ok=True)
    AutoModelForCausalLM.register(config, model, exist_ok=True)


@cache
def _make_transformers_classes() -> tuple[Any, Any]:
    """Make the two classes that transformers needs, where it is installed."""
    from transformers import PreTrainedConfig

    class RoutedConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
        model_type = MODEL_TYPE

    class RoutedForCausalLM:
        """Entry of the registry; it loads the base model's own class, routed."""

        config_class = RoutedConfig

        @classmethod
        def from_pretrained(cls, name: str, *_: Any, config: Any, **arguments: Any) -> Any:
            return _load_routed_model(name, config, arguments)

    return RoutedConfig, RoutedForCausalLM


_CHECKPOINT_ONLY_ARGUMENTS = (
    "_from_auto",
    "adapter_kwargs",
    "revision",
    "subfolder",
    "trust_remote_code",
    "use_safetensors",
)
"""Arguments about the routed checkpoint, which the base model does not get; remote code never runs."""


def _load_routed_model(name: str, config: Any, arguments: dict[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    from macro_routing.models.routing import apply_route
    from macro_routing.models.support import check_weights_complete, choose_attention

    text, layers = getattr(config, "macro_route", None), getattr(config, "macro_layers", None)
    if not isinstance(text, str) or not isinstance(layers, int):
        raise ModelError("the checkpoint is damaged: its config.json has no macro_route and macro_layers")
    route = parse_program_or_mixture(text, layers)
    base = _find_base_folder(name, arguments.get("revision"), config)
    metadata = read_model_metadata(str(base), LoadOptions())
    if metadata.weights_id != getattr(config, "macro_weights_id", None):
        raise ModelError(f"the base model in {base} is not the one this route was found on; export the route again")
    base_arguments = {key: value for key, value in arguments.items() if key not in _CHECKPOINT_ONLY_ARGUMENTS}
    if (attention := getattr(config, "_attn_implementation", None)) is not None:
        base_arguments.setdefault("attn_implementation", attention)
    if (attention := choose_attention(metadata.config, base_arguments.get("attn_implementation"))) is not None:
        base_arguments["attn_implementation"] = attention
    loader: Any = AutoModelForCausalLM
    wants_info = base_arguments.pop("output_loading_info", False)
    loaded, info = loader.from_pretrained(base, use_safetensors=True, output_loading_info=True, **base_arguments)
    check_weights_complete(name, info)
    routed = apply_route(loaded.eval(), route)
    return (routed, info) if wants_info else routed


def _find_base_folder(name: str, revision: str | None, config: Any) -> Path:
    """Find the base model: a folder inside the checkpoint, or a commit on the hub."""
    from macro_routing.models.catalog import fetch_model_folder

    base = getattr(config, "macro_base", None)
    base = base if isinstance(base, dict) else {}
    subfolder, hub, commit = (str(base.get(key, "")) for key in ("folder", "hub", "revision"))
    if re.fullmatch(r"[\w-]+/[\w.-]+", hub) and re.fullmatch(r"[0-9a-f]{40}", commit) and not Path(hub).exists():
        return fetch_model_folder(hub, revision=commit)
    folder = Path(name) if Path(name).is_dir() else fetch_model_folder(name, revision=revision)
    base_folder = folder / subfolder
    if not re.fullmatch(r"\w[\w-]*", subfolder) or not base_folder.resolve().is_relative_to(folder.resolve()):
        raise ModelError(
            f"the checkpoint names its base model {shorten_value(base)}; it must be a folder directly inside it,"
            " or a hub id with a commit"
        )
    if not (base_folder / "config.json").is_file():
        raise ModelError(f"{name} is incomplete: there is no base model in {base_folder}")
    return base_folder
