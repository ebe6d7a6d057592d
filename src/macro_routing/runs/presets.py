"""The presets: settings by name, filled in where nothing was given."""

from typing import Any

from macro_routing.models.frozen import FrozenModel
from macro_routing.models.support import get_text_config
from macro_routing.runs.methods import GUIDED, MACRO
from macro_routing.search import GuidedSettings

_DEEPSEEK_BEGIN = "begin▁of▁sentence"
"""Part of the first token of every text in DeepSeek's tokenizers."""
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # By table; a table with a method's name has what this method sets otherwise than the others.
    "default": {"search": {"final_set": "anchored"}},
    # A first look. What only MACRO knows is for `--method macro`: few rounds and draws, each with few deviations, so
    # that the first rounds already hold usable routes. The guided search loses with fewer rounds than its default
    # (docs/data/planted_small.json).
    "quick": {
        "guided": {"iterations": GuidedSettings.iterations},
        "search": {
            "final_set": "anchored",
            "iterations": 4,
            "draws": 16,
            "elite": 4,
            "k": 4,
            "epsilon_local": 0.06,
            "epsilon_operator": 0.02,
        },
        "data": {"training": 160, "validation": 100, "test": 400},
    },
    # The paper's exact settings; what depends on the model is in `get_paper_settings_for_model`.
    "paper": {
        "search": {"final_set": "raw", "stream": "paper"},
        "data": {"training": 1000, "validation": 100},
        "decoding": {"mode": "reasoning", "reasoning_budget": 400, "answer_budget": 128},
    },
}
PRESET_METHODS = {"paper": MACRO, "default": GUIDED, "quick": GUIDED}
"""How a preset searches unless a method is named."""


def get_paper_settings_for_model(frozen: FrozenModel) -> dict[str, dict[str, Any]]:
    """What the paper sets by model: route length, final set, validation size (specification §5)."""
    kind = get_text_config(frozen.model.config).model_type
    # The distilled model is a Llama by its configuration; its tokenizer is DeepSeek's.
    is_deepseek = _DEEPSEEK_BEGIN in str(getattr(frozen.tokenizer, "bos_token", ""))
    # Qwen3-4B and -8B are the only ones whose maximum length is not twelve above their depth.
    space = {"max_length": 40} if kind == "qwen3" and frozen.layers == 36 else {}
    if kind == "mixtral" or is_deepseek or (kind == "qwen3" and frozen.layers == 40):
        return {"space": space, "search": {"final_set": "anchored"}, "data": {"validation": 200}}
    return {"space": space, "search": {}, "data": {}}
