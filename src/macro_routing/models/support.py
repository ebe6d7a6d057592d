"""Decide from its configuration whether a model can be routed, and explain why not."""

import re
from collections.abc import Mapping
from typing import Any

from macro_routing.errors import ModelError

SUPPORTED_ARCHITECTURES = {
    "llama": "Llama 2/3, SmolLM2, DeepSeek-R1-Distill-Llama",
    "qwen2": "Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3-MoE",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3, text only",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "phi3": "Phi-3, Phi-4",
    "gpt_oss": "gpt-oss",
}
"""``model_type`` of every tested architecture, with the names of its models."""


def get_text_config(config: Any) -> Any:
    """The decoder's configuration, which multimodal models keep inside another one."""
    return config.get_text_config(decoder=True)


def find_unroutable_reason(config: Any, *, allow_untested: bool = False) -> str | None:
    """Why a model with this configuration cannot be routed; None when it can."""
    text = get_text_config(config)
    name = getattr(config, "model_type", "unknown")
    reason = _find_unsupported_structure(config, text)
    if reason is not None:
        return f"{name} models cannot be routed: {reason}"
    if getattr(text, "model_type", None) not in SUPPORTED_ARCHITECTURES and not allow_untested:
        return (
            f"{name} is not among the tested architectures ({', '.join(sorted(SUPPORTED_ARCHITECTURES))});"
            " to try it, allow untested architectures and let `macro doctor` check the model"
        )
    return None


def check_model_can_be_routed(config: Any, *, allow_untested: bool = False) -> None:
    """Reject a model that cannot be routed, with the reason."""
    if reason := find_unroutable_reason(config, allow_untested=allow_untested):
        raise ModelError(reason)


def choose_attention(config: Any, wanted: str | None = None) -> str | None:
    """The implementation of attention to ask transformers for; None leaves the choice to transformers.

    SDPA cannot cap attention scores, as Gemma 2 does. Some versions of transformers choose it and leave out the cap.
    """
    if not caps_attention_scores(config):
        return wanted
    if wanted == "sdpa":
        raise ModelError("attention sdpa leaves out the soft cap of Gemma 2's attention scores; use eager")
    return wanted or "eager"


def caps_attention_scores(config: Any) -> bool:
    """Whether attention scores have a soft cap. Gemma 3 has the setting, too, but does not use it."""
    return config.model_type == "gemma2" and config.attn_logit_softcapping is not None


def check_weights_complete(name: str, loaded: Mapping[str, Any]) -> None:
    """Reject a model whose files do not hold exactly its weights: missing weights would be random."""
    missing = sorted(str(key) for key in loaded.get("missing_keys", ()))
    mismatched = sorted(str(key) for key in loaded.get("mismatched_keys", ()))
    left_over = sorted(str(key) for key in loaded.get("unexpected_keys", ()) if re.search(r"layers\.\d+\.", str(key)))
    for keys, what in (
        (missing, "lack"),
        (mismatched, "have the wrong shape for"),
        (left_over, "hold, beyond the model,"),
    ):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ModelError(f"{name} cannot be loaded: its files {what} {keys[0]}{more}; fetch or convert it again")


def _find_unsupported_structure(config: Any, text: Any) -> str | None:
    """Find a structure that ties a layer to its position in the stack."""
    recurrent = _find_recurrent_layers(text)
    reasons = {
        "it is an encoder-decoder, and routes are defined for decoders only": getattr(
            config, "is_encoder_decoder", False
        ),
        "some layers read the keys and values of other layers, so layers cannot be moved": getattr(
            text, "num_kv_shared_layers", 0
        ),
        f"{recurrent} layers keep a recurrent state instead of keys and values, which a route cannot repeat": recurrent,
        "its configuration describes layers one by one (per_layer_config)": getattr(text, "is_heterogeneous", False),
        "dense and sparse layers are chosen by position (mlp_only_layers, decoder_sparse_step)": getattr(
            text, "mlp_only_layers", None
        )
        or getattr(text, "decoder_sparse_step", None) not in (None, 1),
        "its configuration has no num_hidden_layers": not isinstance(getattr(text, "num_hidden_layers", None), int),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _find_recurrent_layers(text: Any) -> str | None:
    """Find a layer type without keys and values."""
    known = {"full_attention", "sliding_attention", "chunked_attention"}
    unknown = [str(kind) for kind in getattr(text, "layer_types", None) or () if kind not in known]
    names = ("mamba_d_state", "ssm_cfg", "state_size", "ssm_state_size", "linear_num_value_heads")
    state_space = [f"state-space ({name})" for name in names if getattr(text, name, None)]
    return next(iter([*unknown, *state_space]), None)
