"""``--format mergekit``: a mergekit configuration that makes a checkpoint with one layer per step."""

from pathlib import Path

from macro_routing.deploy.export_common import get_hub_commit, open_export_output, reject_unexportable
from macro_routing.errors import ExportError
from macro_routing.models.frozen import ModelMetadata
from macro_routing.models.support import get_text_config
from macro_routing.routes.notation import format_mergekit
from macro_routing.routes.route import Route


def write_mergekit_config(base: ModelMetadata, route: Route, out: Path) -> None:
    """Write the YAML; a hub model is named by its id, any other by its local folder."""
    reject_unexportable(base, route, "mergekit")
    # mergekit copies the configuration's list of layer types unchanged.
    layer_types = getattr(get_text_config(base.config), "layer_types", None)
    if layer_types is not None and (len(set(layer_types)) > 1 or route.length != base.layers):
        raise ExportError(
            f"mergekit cannot write {base.name} with {route.length} layers: its configuration lists the type of each"
            " layer (layer_types), which mergekit does not adapt; use --format hf"
        )
    name = base.name if get_hub_commit(base) else str(base.folder.resolve())
    dtype = str(getattr(base.config, "dtype", None) or "bfloat16").removeprefix("torch.")
    with open_export_output(out, 0) as file:
        file.write_text(format_mergekit(route, name, dtype) + "\n", encoding="utf-8")
