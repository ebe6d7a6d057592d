"""The presets: settings by name, filled in where nothing was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from macro_routing.models.support import get_text_config
from macro_routing.runs.methods import GUIDED, MACRO
from macro_routing.search.guided_settings import GuidedSettings

if TYPE_CHECKING:
    from macro_routing.models.frozen import FrozenModel

_DEEPSEEK_BEGIN = "begin▁of▁sentence"
"""Part of the first token of every text in DeepSeek's tokenizers."""
PAPER_TEST_SEED = 0
"""The paper's seeds of a benchmark share a test set; which one it was is not known."""
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
        "data": {"training": 1000, "validation": 100, "test_seed": PAPER_TEST_SEED},
        "decoding": {"mode": "reasoning", "reasoning_budget": 400, "answer_budget": 128},
    },
}
PAPER = "paper"
PRESET_METHODS = {"paper": MACRO, "default": GUIDED, "quick": GUIDED}
"""How a preset searches unless a method is named."""


def is_loaded_in_4bit_by_paper(config: Any) -> bool:
    """Whether the paper quantizes a model with this configuration: Mixtral and Qwen3-14B."""
    text = get_text_config(config)
    return bool(text.model_type == "mixtral" or (text.model_type == "qwen3" and text.num_hidden_layers == 40))


def get_paper_settings_for_model(frozen: FrozenModel) -> dict[str, dict[str, Any]]:
    """What the paper sets by model: route length, final set, validation size (specification §5)."""
    kind = get_text_config(frozen.model.config).model_type
    # The distilled model is a Llama by its configuration; its tokenizer is DeepSeek's.
    is_deepseek = _DEEPSEEK_BEGIN in str(getattr(frozen.tokenizer, "bos_token", ""))
    # Qwen3-4B and -8B are the only ones whose maximum length is not twelve above their depth.
    space = {"max_length": 40} if kind == "qwen3" and frozen.layers == 36 else {}
    if is_deepseek or is_loaded_in_4bit_by_paper(frozen.model.config):
        return {"space": space, "search": {"final_set": "anchored"}, "data": {"validation": 200}}
    return {"space": space, "search": {}, "data": {}}
