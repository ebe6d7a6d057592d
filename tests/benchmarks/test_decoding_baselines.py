"""The benchmarks of decoding speed: what they run and how they count, on a tiny model without a GPU."""

from types import SimpleNamespace

import pytest

from benchmarks import decoding_baselines
from benchmarks.decoding_baselines import FUSED, GENERATE, STATIC, VLLM, add_ratios, time_own_sides, time_vllm
from benchmarks.fused_steps import DecodingStepTime, DeviceLimits
from macro_routing.engine.route_generation import generate_for_routes
from tests.engine.test_generation import PROMPTS
from tests.models.tiny import tiny_model

WORKER = """
import json, sys
request = json.loads(open(sys.argv[1]).read())
seconds = {copies: [copies * len(request["prompts"])] * request["repeats"] for copies in request["copies"]}
print(json.dumps({"vllm": "0", "torch": "0", "seconds": seconds}))
"""


class EagerDecoder:
    """What is used of the fused decoder, without its kernels, which are slow without a GPU."""

    def __init__(self, model):
        self._model, self.weights = model, model.model

    def generate_for_routes(self, routes, prompts, request):
        return generate_for_routes(self._model, routes, prompts, request)

    def release_memory(self):
        pass


@pytest.fixture
def _few_tokens(monkeypatch):
    monkeypatch.setattr(decoding_baselines, "NEW_TOKENS", 2)
    monkeypatch.setattr(decoding_baselines, "COPIES", 2)


@pytest.mark.usefixtures("_few_tokens")
def test_every_side_decodes_the_same_number_of_texts():
    model = tiny_model("llama")
    lines = add_ratios(list(time_own_sides(model, EagerDecoder(model), list(PROMPTS[:2]), repeats=1)))
    assert [(line["side"], line["rows"], line["routes"]) for line in lines] == [
        (FUSED, 2, 1), (FUSED, 4, 1), (FUSED, 4, 2), (GENERATE, 2, 1), (STATIC, 2, 1), (GENERATE, 4, 1),
    ]  # fmt: skip
    assert [line["ratio"] for line in lines[:2]] == [1, 1]
    assert all(line["tokens"] == pytest.approx(2 * line["rows"] / line["seconds"]) for line in lines)
    assert len(add_ratios(lines[1:])) == 3  # of an interrupted run, those with as many texts


@pytest.mark.usefixtures("_few_tokens")
def test_vllm_is_asked_for_the_same_batches(tmp_path, monkeypatch):
    (tmp_path / "vllm_worker.py").write_text(WORKER)
    monkeypatch.setattr(decoding_baselines, "__file__", str(tmp_path / "decoding_baselines.py"))
    arguments = SimpleNamespace(max_num_seqs=4, repeats=2, vllm_site=tmp_path)
    lines, version = time_vllm("qwen3-1.7b", [(1, 2), (3,)], arguments)
    assert [(line["side"], line["rows"], line["seconds"]) for line in lines] == [(VLLM, 2, 2), (VLLM, 4, 4)]
    assert version == "vLLM 0 (max_num_seqs 4), torch 0"


def test_the_roofline_is_the_larger_of_bytes_and_arithmetic():
    limits = DeviceLimits(bandwidth=100, arithmetic=1000)
    assert limits.product_seconds(200, rows=1) == 2  # bytes
    assert limits.product_seconds(200, rows=100) == 20  # 2 * 100 rows * 100 weights of two bytes
    step = DecodingStepTime(1, 28, 28, 4, seconds=3.0, samples=(3.0,), products=1.5, cache=0.5)
    assert step.times_limit == 1.5
