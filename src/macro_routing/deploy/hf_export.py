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
        _write_shards(tensors, folder, shard_bytes)
        write_model_card(folder, base, route, evidence, needs_macro=False)


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
