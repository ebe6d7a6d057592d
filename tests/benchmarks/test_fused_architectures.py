"""The table of architectures: what is measured, on a tiny model without a GPU, and the shapes it has."""

import json

import pytest
import torch
from transformers import AutoConfig

from benchmarks import fused_architectures, record
from benchmarks.fused import SHAPES, make_random_prompts
from benchmarks.fused_architectures import (
    COLUMNS,
    VOCABULARY,
    find_batch_that_fits,
    measure_architecture,
    time_until_long,
    write_table,
)
from benchmarks.fused_steps import DecodingStepTime, DeviceLimits
from macro_routing.engine.fused.support import SUPPORTED_MODEL_TYPES
from macro_routing.engine.fused.weights import fuse_weights
from tests.benchmarks.test_decoding_baselines import EagerDecoder
from tests.engine.test_generation import PROMPTS
from tests.models.tiny import tiny_model


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_a_line_of_the_table(name, monkeypatch):
    step = DecodingStepTime(1, 6, 6, rows=2, seconds=0.5, samples=(0.5,), products=0.2, cache=0.05)
    monkeypatch.setattr(fused_architectures, "measure_step", lambda *_: step)
    monkeypatch.setattr(fused_architectures, "NEW_TOKENS", 2)
    model = tiny_model(name)
    line = measure_architecture(model, EagerDecoder(model), PROMPTS[:2], DeviceLimits(1, 1))
    assert line.keys() >= COLUMNS.keys() - {"shape"}
    if name == "mixtral":
        assert model.config._experts_implementation == "eager"
    assert line["speedup"] == line["generate"] / line["fused"]
    assert (line["step"], line["limit"], line["tokens"]) == pytest.approx((500, 2, 4))
    assert line["weights"] == pytest.approx(sum(weight.nbytes for weight in model.parameters()) / 1e9)


def test_a_long_run_is_timed_once(monkeypatch):
    runs = []
    assert len(time_until_long(lambda: runs.append(1))) == len(runs) == fused_architectures.REPEATS
    monkeypatch.setattr(fused_architectures, "LONG", -1)
    assert len(time_until_long(lambda: None)) == 1


def test_generate_decodes_fewer_texts_at_once_where_memory_ends(monkeypatch):
    def generate(_, prompts, *__, **___):
        if len(prompts) > 3:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(fused_architectures, "generate_texts", generate)
    assert find_batch_that_fits(None, range(9)) == 3
    assert find_batch_that_fits(None, range(2)) == 2


def test_a_single_text_that_does_not_fit_ends_the_measurement(monkeypatch):
    def generate(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(fused_architectures, "generate_texts", generate)
    with pytest.raises(torch.OutOfMemoryError):
        find_batch_that_fits(None, range(9))


def test_a_record_keeps_the_lines_of_shapes_that_are_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "describe_hardware", lambda _device: "a GPU")
    path, line = tmp_path / "record.json", dict.fromkeys(COLUMNS, 1.0)
    for commit, shapes, step in (
        ("first", ("qwen3-8b", "gemma2-2b"), 1.0),
        ("second", ("mixtral-8x7b", "qwen3-8b"), 2.0),
    ):
        monkeypatch.setenv("MACRO_COMMIT", commit)
        write_table(path, [{**line, "shape": shape, "step": step} for shape in shapes])
    written = json.loads(path.read_text())
    steps = {row["shape"]: row["step"] for row in written["results"]}
    assert list(steps.items()) == [("qwen3-8b", 2.0), ("gemma2-2b", 1.0), ("mixtral-8x7b", 2.0)]
    assert (written["commit"], written["n"]) == ("first, second", 3)


def test_the_roofline_of_experts_reads_those_that_some_row_chooses():
    layer = fuse_weights(tiny_model("mixtral", head_dim=32)).layers[0]  # 2 of 4 experts
    attention = sum(linear.weight.nbytes for linear in (layer.qkv, layer.attention_out))
    experts = layer.mlp.gate_up.nbytes + layer.mlp.down.nbytes
    by_bytes, by_arithmetic = DeviceLimits(1, 1e12), DeviceLimits(1e12, 1)
    assert by_bytes.layer_seconds(layer, 1) == attention + experts / 2
    assert by_bytes.layer_seconds(layer, 2) == attention + experts * 3 / 4
    assert by_arithmetic.layer_seconds(layer, 6) == 6 * (attention + experts / 2)


def test_every_supported_architecture_has_a_shape_that_reads_the_prompts():
    configs = [AutoConfig.for_model(kind, **sizes) for kind, sizes in SHAPES.values()]
    assert {config.model_type for config in configs} == set(SUPPORTED_MODEL_TYPES)
    assert max(map(max, make_random_prompts(20, VOCABULARY))) < min(config.vocab_size for config in configs)
