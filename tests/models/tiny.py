"""Tiny random models of every supported architecture: real transformers code, no weights to fetch."""

import functools
import json
import shutil

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from macro_routing.models.catalog import fetch_model_folder
from macro_routing.models.support import choose_attention

LAYERS = 6
VOCABULARY = 97
TOKENS = 1024
"""Tokens of the tokenizer on disk."""
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
_ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"] * (LAYERS // 3)
_MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
VARIANTS = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
    "qwen2 with sliding layers": {"use_sliding_window": True, "sliding_window": 8, "layer_types": _ALTERNATING},
    "qwen3": {},
    "qwen3 with sliding layers": {"use_sliding_window": True, "sliding_window": 8, "layer_types": _ALTERNATING},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "mixtral": _MOE,
    "gemma2": {"sliding_window": 8, "query_pre_attn_scalar": 8},
    "gemma3_text": {"sliding_window": 8, "query_pre_attn_scalar": 8, "layer_types": _ALTERNATING},
    "olmo2": {},
    "olmo3": {"sliding_window": 8, "layer_types": _ALTERNATING},
    "phi3": {},
    "gpt_oss": {**_MOE, "sliding_window": 8, "layer_types": _ALTERNATING},
}


def config_of(name, **changes):
    return AutoConfig.for_model(name.split(" ", maxsplit=1)[0], **{**_COMMON, **VARIANTS.get(name, {}), **changes})


def tiny_model(name, *, seed=0, attention=None, random_norms=True, **changes):
    """A frozen model whose layers differ enough that order matters.

    Tests of whole searches leave norms at 1: they know which routes are found with these weights.
    """
    torch.manual_seed(seed)
    config = config_of(name, **changes)
    attention = choose_attention(config, attention)
    if attention is not None:
        config._attn_implementation = attention
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
        # Norms are not all 1, and biases not 0: one that is left out or taken for another changes the result.
        for path, parameter in model.named_parameters():
            if random_norms and parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.15 if path.endswith("bias") else 0.3)
    return model.eval().requires_grad_(False)


@functools.cache
def _shorten_tokenizer(folder):
    """SmolLM2's tokenizer with its first tokens alone: to read all 49,152 takes longer than all else in a test."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    bpe = tokenizer["model"]
    vocabulary = bpe["vocab"] = {token: number for token, number in bpe["vocab"].items() if number < TOKENS}
    bpe["merges"] = [merge for merge in bpe["merges"] if {*merge, "".join(merge)} <= vocabulary.keys()]
    return json.dumps(tokenizer)


def write_tokenizer(folder):
    """A real tokenizer with a chat template, though a short one, into a model's folder."""
    source = fetch_model_folder("smollm2-135m")
    (folder / "tokenizer.json").write_text(_shorten_tokenizer(source))
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(source / name, folder / name)


def tiny_folder(folder, name, **changes):
    """A tiny model on disk with such a tokenizer."""
    tiny_model(name, vocab_size=TOKENS, **changes).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def tokens(rows=2, length=12, seed=1):
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))
