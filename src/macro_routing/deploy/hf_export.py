"""``--format hf``: a standard checkpoint with one layer per step, which loads without this project."""

import json
from collections.abc import Sequence
from pathlib import Path

from macro_routing.deploy.checkpoint_tensors import StoredTensor, list_copyable_tensors, unroll_tensors
from macro_routing.deploy.export_common import copy_companion_files, open_export_output, reject_unexportable
from macro_routing.deploy.model_card import write_model_card
from macro_routing.errors import ExportError
from macro_routing.models.frozen import ModelMetadata
from macro_routing.models.layer_copies import make_config_with_entry_per_step
from macro_routing.models.support import get_text_config
from macro_routing.routes.route import Route
from macro_routing.routes.route_file import RouteFile

MAX_SHARD_BYTES = 2_000_000_000
"""Largest file in bytes, which is also the memory that writing needs."""


def write_hf_checkpoint(
    base: ModelMetadata, route: Route, evidence: RouteFile | None, out: Path, *, shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """Write the model with its layers in the route's order; layers applied twice are stored twice."""
    reject_unexportable(base, route, "hf")
    if get_text_config(base.config) is not base.config:
        raise ExportError(f"{base.name} is not a pure text model, which --format hf requires; use --format routed")
    tensors = list(unroll_tensors(list_copyable_tensors(base.folder), route))
    with open_export_output(out, sum(tensor.size_bytes for tensor in tensors)) as folder:
        folder.mkdir()
        copy_companion_files(base, folder)
        config = make_config_with_entry_per_step(base.config, [step.layer for step in route.steps])
        config.name_or_path = ""  # no path of this machine in the checkpoint
        config.save_pretrained(folder)
        _add_keys_of_transformers_4(folder)
        _write_shards(tensors, folder, shard_bytes)
        write_model_card(folder, base, route, evidence, needs_macro=False)


def _add_keys_of_transformers_4(folder: Path) -> None:
    """Keys by which transformers 4 reads what version 5 keeps elsewhere; without them it takes its defaults.

    Tested with 4.57 and 5.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    rope = config.get("rope_parameters")
    if isinstance(rope, dict) and "rope_theta" in rope:
        config.setdefault("rope_theta", rope["rope_theta"])
        if rope.get("rope_type", "default") != "default":
            config.setdefault("rope_scaling", {name: value for name, value in rope.items() if name != "rope_theta"})
    if "dtype" in config:
        config.setdefault("torch_dtype", config["dtype"])
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    path = folder / "tokenizer_config.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if tokenizer.get("tokenizer_class") == "TokenizersBackend":  # version 5's name of the same class
        tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"
        tokenizer.setdefault("model_input_names", ["input_ids", "attention_mask"])  # version 4 adds a third
        path.write_text(json.dumps(tokenizer, indent=2) + "\n", encoding="utf-8")


def _write_shards(tensors: Sequence[StoredTensor], folder: Path, shard_bytes: int) -> None:
    from huggingface_hub import split_state_dict_into_shards_factory
    from safetensors.torch import save_file

    by_name = {tensor.name: tensor for tensor in tensors}
    split = split_state_dict_into_shards_factory(
        by_name,
        get_storage_size=lambda tensor: tensor.size_bytes,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=shard_bytes,
    )
    for file, names in split.filename_to_tensors.items():
        save_file({name: by_name[name].load() for name in names}, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)  # the library writes for its own user alone
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
