"""What llama.cpp makes of an exported file, against transformers."""

import json

import gguf
import pytest
import torch

from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.deploy.gguf_export import get_llama_cpp_pretokenizer_name, write_gguf
from macro_routing.errors import ExportError
from macro_routing.models import load_model
from macro_routing.models.routing import apply_route
from macro_routing.routes import parse_route
from tests.deploy.bases import ADDS, PLAIN, SHORT, files_in, route_file, tiny_base
from tests.models.tiny import TOKENS

_WHOLE = {"vocab_size": TOKENS, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
_SLOWED = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_TEXT = "The capital of France is Paris, and 1234 is a number; l'été arrive."


def _server(path):
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 256
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.verbosity = 0
    parameters.cpuparams.n_threads = 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return xllamacpp.Server(parameters)


def _top(server, prompt, count=10):
    """The most probable next tokens and their log-probabilities; also how many tokens the prompt was."""
    asked = {"prompt": prompt, "max_tokens": 1, "n_probs": count, "temperature": 0.0, "cache_prompt": False}
    answer = server.handle_completions(asked)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return {one["id"]: one["logprob"] for one in top}, answer["usage"]["prompt_tokens"]


def _expected(frozen, route, ids):
    with torch.no_grad():
        logits = apply_route(frozen, route)(torch.tensor([ids])).logits[0, -1]
    return torch.log_softmax(logits.double(), -1)


def _compare(path, base, route, tolerance):
    frozen = load_model(base.name)
    ids = frozen.tokenizer(_TEXT).input_ids
    expected = _expected(frozen, route, ids)
    server = _server(path)
    found, count = _top(server, _TEXT)  # llama.cpp's own reading of the text
    assert count == len(ids)
    assert list(found) == expected.topk(10).indices.tolist()
    assert max(abs(expected[token].item() - value) for token, value in found.items()) < tolerance
    assert _top(server, ids)[0] == found


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {"attention_bias": True}),
        ("llama", {"rope_parameters": _SLOWED, "tie_word_embeddings": True}),
        ("mistral", {"sliding_window": None}),
        ("qwen2", {}),
        ("qwen3", {}),
    ],
    ids=["llama", "llama3 positions", "mistral", "qwen2", "qwen3"],
)
def test_llama_cpp_agrees_with_transformers(architecture, changes, tmp_path):
    base = tiny_base(tmp_path / "base", architecture, **_WHOLE, **changes)
    write_gguf(base, PLAIN, None, tmp_path / "out.gguf")
    _compare(tmp_path / "out.gguf", base, PLAIN, 1e-4)


@pytest.mark.engines
def test_llama_cpp_agrees_on_a_real_model(tmp_path):
    base = open_exportable_model("smollm2-135m")
    route = parse_route("L0-L17 L15-L17 RJ", 30)
    write_gguf(base, route, None, tmp_path / "out.gguf")
    _compare(tmp_path / "out.gguf", base, route, 1e-3)


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_numbers_keep_their_precision(dtype, tmp_path):
    names = {"BF16": torch.bfloat16, "F16": torch.float16}
    base = tiny_base(tmp_path / "base", "llama", **_WHOLE)
    model = load_model(base.name).model.to(names[dtype])
    model.save_pretrained(base.folder)
    base = open_exportable_model(base.name)
    write_gguf(base, SHORT, None, tmp_path / "out.gguf")
    tensors = {one.name: one for one in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    assert tensors["blk.3.ffn_up.weight"].tensor_type.name == dtype
    assert tensors["blk.3.ffn_norm.weight"].tensor_type.name == "F32"
    stored = torch.from_numpy(tensors["blk.3.ffn_up.weight"].data.copy()).view(names[dtype])
    assert torch.equal(stored.reshape(96, 64), model.model.layers[5].mlp.up_proj.weight)


def test_the_file_says_where_it_comes_from(tmp_path):
    base = tiny_base(tmp_path / "base", "llama", **_WHOLE)
    write_gguf(base, PLAIN, route_file(base, PLAIN), tmp_path / "out.gguf")
    fields = gguf.GGUFReader(tmp_path / "out.gguf").fields
    assert fields["macro.route"].contents() == str(PLAIN)
    assert fields["llama.block_count"].contents() == PLAIN.length
    assert "by 5 points" in fields["macro.route_file"].contents()
    assert fields["tokenizer.ggml.eos_token_id"].contents() == 2
    assert "im_start" in fields["tokenizer.chat_template"].contents()


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("gemma2", {}, "gemma2 is not among llama, mistral, qwen2, qwen3"),
        ("mistral", {}, "sliding-window"),
        ("qwen3 with sliding layers", {}, "sliding-window"),
        ("qwen3", {"rope_parameters": {**_SLOWED, "rope_type": "linear"}}, r"rotary scaling \(linear\)"),
        ("llama", {}, "the tokenizer has token 1023"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_llama_cpp_would_run_differently_is_rejected(architecture, changes, reason, tmp_path):
    base = tiny_base(tmp_path / "base", architecture, **changes)
    before = files_in(tmp_path)
    with pytest.raises(ExportError, match=reason):
        write_gguf(base, PLAIN, None, tmp_path / "out.gguf")
    assert files_in(tmp_path) == before


def test_adds_are_rejected_by_their_steps(tmp_path):
    base = tiny_base(tmp_path / "base", "llama")
    with pytest.raises(ExportError, match=r"step 5 \(L2\(\+h-2\)\), step 6 \(L3\(-0.5h-1\)\); use --format routed"):
        write_gguf(base, ADDS, None, tmp_path / "out.gguf")


def test_ways_to_cut_text():
    byte_level = {"type": "ByteLevel", "use_regex": True, "add_prefix_space": False}
    digits = {"type": "Digits", "individual_digits": True}
    model = {"type": "BPE", "byte_fallback": False}
    smollm = {"type": "Sequence", "pretokenizers": [digits, byte_level]}
    assert get_llama_cpp_pretokenizer_name({"model": model, "pre_tokenizer": smollm}) == "smollm"
    for stored in (
        {"model": {**model, "byte_fallback": True}, "pre_tokenizer": byte_level},
        {"model": model, "pre_tokenizer": None},
        {"model": model, "pre_tokenizer": {**byte_level, "add_prefix_space": True}},
        {"model": {"type": "Unigram"}, "pre_tokenizer": byte_level},
    ):
        with pytest.raises(ExportError, match="pre-tokenizer of GPT-2"):
            get_llama_cpp_pretokenizer_name(stored)
