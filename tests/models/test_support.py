"""Every refusal, by name and reason, from the configuration alone."""

import pytest
from transformers import AutoConfig

from macro_routing.errors import ModelError
from macro_routing.models.support import (
    SUPPORTED_ARCHITECTURES,
    check_model_can_be_routed,
    choose_attention,
    find_unroutable_reason,
)
from tests.models.tiny import VARIANTS, config_of


def test_every_supported_architecture_is_in_the_matrix():
    assert {name.split(" ")[0] for name in VARIANTS} == set(SUPPORTED_ARCHITECTURES)


@pytest.mark.parametrize("name", VARIANTS)
def test_supported(name):
    check_model_can_be_routed(config_of(name))


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("t5", {}, "t5 models cannot be routed: it is an encoder-decoder"),
        ("bart", {}, "encoder-decoder"),
        ("gemma3n_text", {}, "read the keys and values of other layers"),
        ("qwen3_next", {}, "linear_attention layers keep a recurrent state"),
        ("mamba", {}, "recurrent state"),
        ("falcon_h1", {}, "recurrent state"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "mlp_only_layers"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ("gpt2", {}, "gpt2 is not among the tested architectures"),
        ("granite", {}, "granite is not among the tested architectures"),
    ],
)
def test_rejected_by_name_and_reason(name, changes, reason):
    config = AutoConfig.for_model(name, **changes)
    with pytest.raises(ModelError, match=reason):
        check_model_can_be_routed(config)


def test_untested_architectures_can_be_allowed_but_impossible_ones_cannot():
    assert find_unroutable_reason(AutoConfig.for_model("granite"), allow_untested=True) is None
    assert find_unroutable_reason(AutoConfig.for_model("qwen3_next"), allow_untested=True) is not None


def test_layers_described_one_by_one_are_rejected():
    config = config_of("llama")
    config.per_layer_config = {1: {"intermediate_size": 24}}
    with pytest.raises(ModelError, match="one by one"):
        check_model_can_be_routed(config)


def test_attention_that_caps_its_scores_is_never_sdpa():
    """Whatever version of transformers: some choose SDPA for Gemma 2, which leaves the cap out."""
    capped = config_of("gemma2")
    assert choose_attention(capped) == "eager"
    assert choose_attention(capped, "flash_attention_2") == "flash_attention_2"
    with pytest.raises(ModelError, match="leaves out the soft cap"):
        choose_attention(capped, "sdpa")
    assert choose_attention(config_of("gemma2", attn_logit_softcapping=None), "sdpa") == "sdpa"
    assert choose_attention(config_of("llama")) is None
