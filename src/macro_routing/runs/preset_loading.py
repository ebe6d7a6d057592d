"""How a run's model is loaded, where its preset says so."""

import dataclasses
import importlib.util

from macro_routing.errors import ModelError
from macro_routing.models.catalog import fetch_model_folder
from macro_routing.models.frozen import read_model_config
from macro_routing.models.load_options import LoadOptions
from macro_routing.runs.config import RunConfig
from macro_routing.runs.presets import PAPER, is_loaded_in_4bit_by_paper


def resolve_loading(config: RunConfig) -> LoadOptions:
    """How the model is loaded: preset ``paper`` loads two models in 4 bits unless a quantization was given.

    Checkpoints that are quantized already (AWQ, GPTQ) are loaded as they are.
    """
    loading = config.loading
    if config.preset != PAPER or "quantization" in config.given.get("loading", {}):
        return loading
    folder = fetch_model_folder(config.model, revision=loading.revision)
    model_config = read_model_config(folder, config.model, loading)
    if not is_loaded_in_4bit_by_paper(model_config) or getattr(model_config, "quantization_config", None):
        return loading
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError(
            f"preset paper loads {config.model} in 4 bits, which needs bitsandbytes: pip install '.[quant]' in the"
            " checkout, or deviate from the paper with --quantization none"
        )
    return dataclasses.replace(loading, quantization="4bit")
