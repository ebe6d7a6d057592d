import json
import warnings

import pytest
import torch

from macro_routing.errors import MacroError, ModelError
from macro_routing.models import LoadOptions, apply_route, freeze_model, load_model
from macro_routing.models.chat import ThinkBlock, read_chat_format, render_chat_prompt
from macro_routing.models.doctor import run_checks
from macro_routing.routes import parse_route
from tests.deploy.bases import tiny_base
from tests.models.tiny import tiny_folder, tiny_model, tokens
from tests.runs.small import small_folder


@pytest.fixture
def folder(tmp_path):
    return tiny_folder(tmp_path / "tiny", "llama", hidden_size=64, intermediate_size=128, head_dim=16)


def test_frozen_means_no_gradients_and_no_dropout(folder):
    model = load_model(str(folder)).model
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model.dtype == torch.float32


def test_weights_id_is_the_same_in_every_dtype_and_numerics_id_is_not(folder):
    full = load_model(str(folder))
    half = load_model(str(folder), LoadOptions(dtype="bfloat16"))
    eager = load_model(str(folder), LoadOptions(attention="eager"))
    assert full.weights_id == half.weights_id == eager.weights_id
    assert len({full.numerics_id, half.numerics_id, eager.numerics_id}) == 3
    assert half.model.dtype == torch.bfloat16


def test_identities_are_repeatable(folder):
    assert load_model(str(folder)).numerics_id == load_model(str(folder)).numerics_id


def test_other_weights_another_shape_and_another_vocabulary_are_other_models(folder):
    first = load_model(str(folder))
    changed = load_model(str(folder)).model
    changed.lm_head.weight.data[0, 0] += 1
    changed.save_pretrained(folder)
    assert load_model(str(folder)).weights_id != first.weights_id
    assert freeze_model(tiny_model("llama")).weights_id != freeze_model(tiny_model("llama", seed=1)).weights_id
    assert freeze_model(tiny_model("llama")).weights_id == freeze_model(tiny_model("llama")).weights_id
    assert freeze_model(tiny_model("llama"), first.tokenizer).weights_id != freeze_model(tiny_model("llama")).weights_id


def test_a_model_in_memory_has_one_identity_in_every_dtype():
    exact = tiny_model("llama").to(torch.bfloat16)
    assert freeze_model(exact).weights_id == freeze_model(tiny_model("llama").to(torch.bfloat16).float()).weights_id


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"rms_norm_eps": 0.5},
    ],
)
def test_what_the_configuration_says_is_part_of_the_identity(folder, changes):
    assert freeze_model(tiny_model("llama", **changes)).weights_id != freeze_model(tiny_model("llama")).weights_id
    first = load_model(str(folder))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    assert load_model(str(folder)).weights_id != first.weights_id
    (folder / "config.json").write_text(json.dumps({**config, "transformers_version": "9.9", "dtype": "bfloat16"}))
    assert load_model(str(folder)).weights_id == first.weights_id


def _without(folder, fragment):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if fragment not in name}
    assert len(kept) < len(weights)
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("fragment", ["layers.3.", "lm_head", "q_proj"])
def test_missing_weights_are_rejected_not_made_up(folder, fragment):
    _without(folder, fragment)
    with pytest.raises(ModelError, match=f"its files lack .*{fragment}"):
        load_model(str(folder))


@pytest.mark.parametrize(("layers", "message"), [(8, "its files lack"), (4, "beyond the model")])
def test_a_configuration_of_another_depth_is_rejected(folder, layers, message):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
    with pytest.raises(ModelError, match=message):
        load_model(str(folder))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"garbage" * 100),
        ("config.json", b"null"),
        ("config.json", b"{"),
        ("tokenizer.json", b"[]"),
        ("tokenizer_config.json", b"[]"),
        ("generation_config.json", b"[]"),
    ],
)
def test_damaged_files_are_rejected(folder, file, content):
    (folder / file).write_bytes(content)
    with pytest.raises(ModelError):
        load_model(str(folder))


@pytest.mark.parametrize(
    "changes", [{"num_attention_heads": 0}, {"rope_parameters": 5}, {"num_hidden_layers": "6"}, {"rms_norm_eps": "x"}]
)
def test_impossible_configurations_are_rejected(folder, changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ModelError):
        load_model(str(folder))


def test_weights_saved_over_a_converted_model_are_another_model(folder):
    digest = "0" * 64
    from macro_routing.files import checksum_file

    note = {
        "sha256": digest,
        "stored": "float32",
        "checksums": {"model.safetensors": checksum_file(folder / "model.safetensors")},
    }
    (folder / "macro_source.json").write_text(json.dumps(note))
    converted = load_model(str(folder))
    changed = load_model(str(folder)).model
    changed.lm_head.weight.data[0, 0] += 1
    changed.save_pretrained(folder)
    assert load_model(str(folder)).weights_id != converted.weights_id
    for nonsense in ("{}", "[", "3"):
        (folder / "macro_source.json").write_text(nonsense)
        load_model(str(folder))


@pytest.mark.parametrize("kind", ["4bit", "8bit"])
@pytest.mark.filterwarnings("ignore")
def test_quantised_weights_are_routed(folder, kind):
    frozen = load_model(str(folder), LoadOptions(quantization=kind))
    assert frozen.model.is_quantized
    findings = list(run_checks(frozen))
    assert [finding for finding in findings if not finding.passed] == []
    assert frozen.numerics_id != load_model(str(folder)).numerics_id
    assert frozen.weights_id == load_model(str(folder)).weights_id


@pytest.mark.parametrize("architecture", ["mixtral", "qwen3_moe", "llama"])
def test_experts_that_are_not_quantized_are_named(tmp_path, architecture):
    tiny_base(tmp_path / "model", architecture)
    messages, options = [], LoadOptions(quantization="4bit")
    frozen = load_model(str(tmp_path / "model"), options, messages.append)
    plain = {type(weight).__name__ for name, weight in frozen.model.named_parameters() if "experts" in name}
    assert plain == (set() if architecture == "llama" else {"Parameter"})
    warned = [message for message in messages if "the experts of this model stay in bfloat16" in message]
    assert len(warned) == len(plain)  # goes, with the warning, when bitsandbytes quantizes them
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_model(str(tmp_path / "model"), options)
    assert sum("the experts of this model stay" in str(warning.message) for warning in caught) == len(plain)


def test_device_map(folder):
    frozen = load_model(str(folder), LoadOptions(device_map="auto"))
    assert [finding for finding in run_checks(frozen) if not finding.passed] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int4"}, "dtype = 'int4' is not allowed"),
        ({"quantization": "3bit"}, "quantization = '3bit'"),
        ({"attention": "foo"}, "attention = 'foo' is not allowed: it must be one of sdpa, eager, flash_attention_2"),
        ({"device": "mps"}, r"Apple GPUs \(mps\) are not supported"),
        ({"device": "cpu", "device_map": "auto"}, "exclude each other"),
        ({"device": "meta"}, "device = 'meta' is not allowed"),
    ],
)
def test_impossible_options_are_rejected_by_name(options, message):
    with pytest.raises(MacroError, match=message):
        LoadOptions(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_named(folder):
    with pytest.raises(ModelError, match="device = cuda: no CUDA device"):
        load_model(str(folder), LoadOptions(device="cuda"))


def test_quantising_without_bitsandbytes_says_what_to_install(folder, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "bitsandbytes" else find(name, *a)
    )
    with pytest.raises(ModelError, match=r"pip install '\.\[quant\]'"):
        load_model(str(folder), LoadOptions(quantization="4bit"))


def test_remote_code_does_not_run_unless_asked_for(folder):
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "stranger"
    config["auto_map"] = {"AutoConfig": "configuration_stranger.StrangerConfig"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_stranger.py").write_text("raise SystemExit('remote code ran')")
    with pytest.raises(ModelError, match=r"configuration of .* cannot be read"):
        load_model(str(folder))


def test_pickled_weights_are_not_loaded(folder):
    for path in folder.glob("*.safetensors"):
        path.unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(folder))


class TestSmolLM2:
    """The built-in default model, for real."""

    @pytest.mark.engines  # a quarter of a minute; all architectures are checked on tiny models
    def test_doctor(self, smollm2):
        assert [finding for finding in run_checks(smollm2) if not finding.passed] == []

    def test_the_turn_ends_where_the_template_ends_it(self, smollm2):
        end = smollm2.tokenizer.convert_tokens_to_ids("<|im_end|>")
        assert end in smollm2.chat.end_token_ids
        assert smollm2.tokenizer.eos_token_id == end
        assert smollm2.chat.think is None
        assert smollm2.layers == 30

    def test_it_answers_and_stops(self, smollm2):
        text = render_chat_prompt(smollm2.tokenizer, [{"role": "user", "content": "What is the capital of France?"}])
        ids = torch.tensor([smollm2.tokenizer.encode(text, add_special_tokens=False)])
        for route in ("L0 RJ", "L0-L17 L17 RJ"):
            model = apply_route(smollm2.model, parse_route(route, 30))
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=24,
                do_sample=False,
                eos_token_id=list(smollm2.chat.end_token_ids),
            )
            assert "Paris" in smollm2.tokenizer.decode(out[0, ids.shape[1] :])
        standard = smollm2.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
        assert standard[0, -1] in smollm2.chat.end_token_ids

    def test_a_published_kind_of_route_changes_the_model(self, smollm2):
        ids = tokens() % 1000
        routed = apply_route(smollm2, parse_route("L0-L15 L13(+h-2) RJ", 30))
        with torch.no_grad():
            assert not torch.equal(routed(ids).logits, smollm2.model(ids).logits)


class TestChatFormat:
    def test_a_think_block_is_seen(self, smollm2):
        tokenizer = _with_template(
            smollm2.tokenizer, "{% for m in messages %}{{ m.content }}<think></think>{% endfor %}"
        )
        assert read_chat_format(tokenizer).think == ThinkBlock("<think>", "</think>")

    def test_an_end_of_turn_that_is_not_the_eos_token_is_found(self, smollm2):
        tokenizer = _with_template(
            smollm2.tokenizer, "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>\n{% endfor %}"
        )
        tokenizer.eos_token = "<|endoftext|>"
        ids = read_chat_format(tokenizer).end_token_ids
        assert ids == tuple(tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"]))

    def test_a_broken_template_leaves_the_eos_token(self, smollm2):
        tokenizer = _with_template(smollm2.tokenizer, "{{ raise_exception('no') }}")
        assert read_chat_format(tokenizer).end_token_ids == (tokenizer.eos_token_id,)

    def test_without_a_template_rendering_is_rejected(self, smollm2):
        tokenizer = _with_template(smollm2.tokenizer, None)
        assert read_chat_format(tokenizer).template is None
        with pytest.raises(ModelError, match="no chat template"):
            render_chat_prompt(tokenizer, [{"role": "user", "content": "Hello"}])


def _with_template(tokenizer, template):
    import copy

    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


@pytest.mark.large
@pytest.mark.parametrize("name", ["gemma3-270m", "qwen2.5-coder-1.5b"])
def test_doctor_on_larger_models(name):
    frozen = load_model(name)
    if name == "gemma3-270m":
        assert frozen.tokenizer.encode("Hello")[0] == frozen.tokenizer.bos_token_id
    assert [finding for finding in run_checks(frozen) if not finding.passed] == []


@pytest.mark.parametrize("special", [True, False])
def test_many_texts_are_read_as_one_by_one(smollm2, special):
    texts = ["", "In  1987 it's 12,345!", "<|im_start|>user\nnaïve 東京 €5<|im_end|>\n", " x" * 300, "a"]
    assert smollm2.tokenize_texts(texts, add_special_tokens=special) == [
        smollm2.tokenizer(text, add_special_tokens=special)["input_ids"] for text in texts
    ]


def test_loading_a_model_prints_nothing(tmp_path, capfd):
    from transformers.utils import logging

    folder = str(small_folder(tmp_path / "model"))
    logging.enable_progress_bar()
    capfd.readouterr()
    load_model(folder)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert logging.is_progress_bar_enabled()
