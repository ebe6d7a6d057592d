"""Fused decoding against the eager path: the same texts, token by token.

Without a GPU the kernels are interpreted, which is slow: few rows, few tokens, one layer order that has everything.
"""

import weakref
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.engine.decoders import EAGER, FUSED, fused_unsupported_reason
from macro_routing.engine.fused import batch_plan, kernels, model_runner
from macro_routing.engine.fused.batch_plan import RoutesOverSamePrompts, plan_batches
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.fused.device_tables import assign_rows_to_sequences, pad_row_count
from macro_routing.engine.fused.support import (
    MAX_STAGE_TOKENS,
    SUPPORTED_MODEL_TYPES,
    find_fused_unsupported_reason,
    kernels_support_stages,
)
from macro_routing.engine.generation import DecodingStage, GenerationRequest
from macro_routing.engine.layer_schedule import merge_layer_orders, merge_layer_orders_fast, schedule_layer_calls
from macro_routing.engine.route_generation import generate_for_pairs, generate_for_routes
from macro_routing.errors import ModelError
from macro_routing.routes import parse_route
from macro_routing.routes.mixture import parse_mixture
from tests.engine.test_generation import PROMPTS
from tests.engine.test_shared_likelihood import COMMON_PREFIX
from tests.models.tiny import LAYERS, VARIANTS, tiny_model
from tests.strategies import programs

ENDS = frozenset(range(3, 12))
STAGES = (DecodingStage(ENDS, 3, (50, 51)), DecodingStage(ENDS, 2))
ROUTES = [parse_route(text, LAYERS) for text in ("L0-L3 L1(+h-2) L2(-0.25h-1) RJ", "L0 L2 RJ")]
HEADS = {"head_dim": 32}


def _assert_fused_equals_eager(model, prompts, stages=STAGES, routes=ROUTES):
    expected = generate_for_routes(model, routes, prompts, GenerationRequest(stages))
    actual = FusedDecoder(model, graphs=False).generate_for_routes(routes, prompts, GenerationRequest(stages))
    assert actual == expected
    return expected


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_texts_equal_those_of_the_eager_path(name, monkeypatch):
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 1)
    routes = [parse_route(text, 3) for text in ("L0-L2 L1(+h-2) L2(-0.25h-1) RJ", "L0 L2 RJ")]
    texts = _assert_fused_equals_eager(_shallow_model(name), PROMPTS[:2], routes=routes)
    assert any(text.truncated for rows in texts.values() for row in rows for text in row)


def _shallow_model(name, **changes):
    """A model of three layers, those with a window and one without among them where there are both."""
    if "layer_types" in VARIANTS[name]:
        changes["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
    return tiny_model(name, **HEADS, num_hidden_layers=3, **changes)


OTHER_FORMS = [
    name for name in VARIANTS if name.split(" ")[0] in SUPPORTED_MODEL_TYPES and name not in ("llama", "qwen2", "qwen3")
]
LONG_PROMPTS = [PROMPTS[0], (*PROMPTS[1], *PROMPTS[2])]
"""The second is longer than the windows."""


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_texts_of_other_forms_of_layers(name, monkeypatch):
    """A route with a repeat, a skip, a jump and an add."""
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 1)
    routes = [parse_route("L0 L0 L2 L1(+h-2) L2", 3)]
    texts = _assert_fused_equals_eager(_shallow_model(name), LONG_PROMPTS, (DecodingStage(frozenset(), 3),), routes)
    assert max(map(len, LONG_PROMPTS)) > 8
    assert len({text.tokens for rows in texts.values() for row in rows for text in row}) == len(LONG_PROMPTS)


def test_heads_whose_size_is_not_a_power_of_2(monkeypatch):
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 2)
    model = tiny_model("qwen3", head_dim=40, num_hidden_layers=3)
    _assert_fused_equals_eager(model, LONG_PROMPTS, (DecodingStage(frozenset(), 2),), [parse_route("L0 L2", 3)])
    reason = find_fused_unsupported_reason(tiny_model("llama", head_dim=24), interpreted=True)
    assert reason == "its head size is 24 (it must be even, and from 32 to 256)"


def test_the_largest_heads(monkeypatch):
    """The size of Gemma's heads, with and without a window."""
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 2)
    model = tiny_model("gemma2", head_dim=256, num_hidden_layers=2)
    _assert_fused_equals_eager(model, LONG_PROMPTS[1:], (DecodingStage(frozenset(), 2),), [parse_route("L0 L1", 2)])


def test_a_mixture_of_routes_with_capped_logits_and_windows():
    mixtures = [parse_mixture("1.7 [L0-L2] - 0.7 [L0 L2]", 3)]
    model = _shallow_model("gemma2", final_logit_softcapping=2.0, attn_logit_softcapping=1.0)
    _assert_fused_equals_eager(model, LONG_PROMPTS[1:], (DecodingStage(frozenset(), 3),), mixtures)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_capped_logits_are_rounded_where_the_model_rounds_them(dtype):
    """In 16 bits the cap makes large logits equal; the first of the largest counts, as in the prefill.

    The interpreter does not round to bfloat16 as devices do.
    """
    generator = torch.Generator().manual_seed(0)
    logits = (60 + 40 * torch.rand(16, 200, generator=generator)).to(dtype)
    capped = 30.0 * torch.tanh(logits / 30.0)
    best_value, best_token = torch.zeros(16, 1), torch.zeros(16, 1, dtype=torch.int32)
    step = torch.zeros(1, dtype=torch.int32)
    kernels.block_argmax[(16, 1)](logits, best_value, best_token, step, 0, 200, 1, 30.0, CAPPED=True, BLOCK=256)
    assert torch.allclose(best_value[:, 0], capped.max(dim=1).values.float(), rtol=1e-6)
    if dtype == torch.float16:  # where other tokens have the largest logit
        assert best_token[:, 0].tolist() == capped.float().argmax(dim=1).tolist()
        assert best_token[:, 0].tolist() != logits.float().argmax(dim=1).tolist()


def test_a_mixture_of_capped_logits_is_rounded_alike():
    generator = torch.Generator().manual_seed(0)
    logits = (60 + 40 * torch.rand(2, 200, generator=generator)).half()
    capped = (30.0 * torch.tanh(logits / 30.0)).float()
    best_value, best_token = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int32)
    live, weight, reference = (
        torch.arange(2, dtype=torch.int32),
        torch.tensor([1.5, -0.5]),
        torch.zeros(2, dtype=torch.int32),
    )
    members = capped.max(dim=1, keepdim=True).values
    kernels.mixture_argmax[(1, 1)](
        logits, members, best_value, best_token, live, weight, reference, 0, 200, 1, -2.3, 30.0,
        CAPPED=True, MEMBERS=2, BLOCKS=1, BLOCK=256,
    )  # fmt: skip
    total = 1.5 * capped[0] - 0.5 * capped[1]
    assert best_value[0, 0] == total.max()
    assert best_token[0, 0] == total.argmax()


def test_prompts_with_routes_of_their_own_and_windows():
    """Prompts of different lengths are prefilled together; only what windows keep of them is cached."""
    model, request = _shallow_model("mistral"), GenerationRequest((DecodingStage(frozenset(), 2),))
    routes = [parse_route(text, 3) for text in ("L0-L2", "L0 L2")]
    pairs = list(zip(routes, LONG_PROMPTS, strict=True))
    actual = FusedDecoder(model, graphs=False).generate_for_pairs(pairs, request)
    assert actual == generate_for_pairs(model, pairs, request)


def _quantize_to_4_bits(model, compute_dtype=torch.float32):
    """Replace the linear maps of all layers as transformers does when it loads a model in 4 bits."""
    bnb = pytest.importorskip("bitsandbytes")
    model.config.quantization_config = {"quant_method": "bitsandbytes"}
    for parent in [module for layer in model.model.layers for module in layer.modules()]:
        for name, linear in list(parent.named_children()):
            if type(linear) is torch.nn.Linear:
                quantized = bnb.nn.Linear4bit(
                    linear.in_features,
                    linear.out_features,
                    compute_dtype=compute_dtype,
                    quant_type="nf4",
                    device="meta",
                )
                quantized.weight = bnb.nn.Params4bit(
                    linear.weight.data, requires_grad=False, quant_type="nf4", module=quantized
                )
                quantized.bias = linear.bias
                quantized.support_avx512bf16_for_cpu = False  # it would pack the weights in another way
                setattr(parent, name, quantized)
    return model.to("cpu")


def test_4_bit_weights_are_those_that_bitsandbytes_multiplies_with():
    model = _quantize_to_4_bits(_shallow_model("qwen2"))
    weights = FusedDecoder(model, graphs=False).weights.layers[0]
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    out = torch.empty(5, len(weights.qkv.weight))
    expected = [linear(states) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
    assert torch.allclose(weights.qkv.apply_into(states, out), torch.cat(expected, dim=1), rtol=0, atol=1e-6)
    identity = torch.eye(48)
    assert torch.equal(mlp.down_proj(identity).t(), weights.mlp.down.weight)  # to the last bit
    assert mlp.down_proj.weight.dtype == torch.uint8  # the eager path goes on with 4 bits


def test_texts_with_4_bit_weights():
    model = _quantize_to_4_bits(_shallow_model("mistral"))
    _assert_fused_equals_eager(
        model, LONG_PROMPTS[:1], (DecodingStage(frozenset(), 2),), [parse_route("L0 L2 L1(+h-1)", 3)]
    )


def test_other_quantized_weights_are_rejected_with_a_reason():
    model = _quantize_to_4_bits(_shallow_model("llama"), torch.bfloat16)
    assert "not de-quantized to torch.float32" in find_fused_unsupported_reason(model, interpreted=True)
    bnb = pytest.importorskip("bitsandbytes")
    model.model.layers[1].mlp.up_proj = bnb.nn.Linear8bitLt(32, 48, has_fp16_weights=False)
    assert "rounds states to 8 bits" in find_fused_unsupported_reason(model, interpreted=True)
    model.model.layers[1].mlp.up_proj = type("OtherLinear", (torch.nn.Linear,), {})(32, 48)
    assert "not by bitsandbytes" in find_fused_unsupported_reason(model, interpreted=True)


class _PackedTensor(torch.Tensor):
    """Weights as torchao keeps them: a tensor of another class in an ordinary linear map."""


def _pack(linear):
    linear.weight = torch.nn.Parameter(linear.weight.data.as_subclass(_PackedTensor), requires_grad=False)
    return linear


class _OtherModule(torch.nn.Module):
    """A quantized projection that is not a linear map by its class, as those of GPTQ, AWQ and HQQ."""

    def __init__(self, linear):
        super().__init__()
        self.register_buffer("qweight", linear.weight.data.to(torch.int8))


@pytest.mark.parametrize("method", ["gptq", "bitsandbytes", None])
@pytest.mark.parametrize("quantize", [_pack, _OtherModule])
@pytest.mark.parametrize("path", ["layers.1.self_attn.k_proj", "layers.2.mlp.down_proj"])
def test_projections_of_other_quantizations_are_rejected_in_every_layer(method, quantize, path):
    model = _shallow_model("llama")
    if method is not None:
        model.config.quantization_config = {"quant_method": method}
    assert (find_fused_unsupported_reason(model, interpreted=True) is None) == (method != "gptq")
    model.model.set_submodule(path, quantize(model.model.get_submodule(path)))
    assert "linear maps" in (reason := find_fused_unsupported_reason(model, interpreted=True)) or "4 bits" in reason
    with pytest.raises(ModelError, match="cannot use the fused decoder"):
        FusedDecoder(model, graphs=False)


@pytest.mark.parametrize("quantize", [_pack, _OtherModule])
def test_a_quantized_head_is_rejected(quantize):
    model = _shallow_model("llama")
    model.lm_head = quantize(model.lm_head)
    assert find_fused_unsupported_reason(model, interpreted=True) == "its head is not a plain linear map"


def test_released_memory_includes_de_quantized_weights():
    decoder = FusedDecoder(_quantize_to_4_bits(_shallow_model("qwen2")), graphs=False)
    before, released = decoder.weights, weakref.ref(decoder.weights.layers[0].mlp.gate_up.weight)
    expected = before.layers[0].mlp.gate_up.weight.clone()
    del before
    decoder.release_memory()
    assert released() is None
    assert torch.equal(decoder.weights.layers[0].mlp.gate_up.weight, expected)
    plain = FusedDecoder(_shallow_model("qwen2"), graphs=False)
    weights = plain.weights
    plain.release_memory()
    assert plain.weights is weights  # the model's own weights are views of these


def test_a_common_prefix_several_batches_and_split_attention(monkeypatch):
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 2)
    monkeypatch.setattr(batch_plan, "MAX_PREFILL_TOKENS", 60)
    _assert_fused_equals_eager(
        _shallow_model("qwen2"),
        [(*COMMON_PREFIX, *prompt) for prompt in PROMPTS[:3]],
        (DecodingStage(ENDS, 2),),
        [parse_route("L0-L2 L1(+h-2) L2(-0.25h-1) RJ", 3)],
    )


def test_the_model_itself_is_unchanged_and_nothing_is_stored_twice():
    model = tiny_model("qwen2", **HEADS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    decoder = FusedDecoder(model, graphs=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    layer = model.model.layers[0]
    joined = decoder.weights.layers[0].mlp.gate_up.weight
    assert layer.mlp.gate_proj.weight.data_ptr() == joined.data_ptr()
    assert layer.mlp.up_proj.weight.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()


@given(st.lists(programs(LAYERS).map(lambda program: program.to_route(LAYERS)), min_size=1, max_size=6), st.booleans())
@settings(deadline=None, max_examples=60)
def test_layer_calls_take_every_route_through_its_steps_and_adds(routes, are_many):
    if are_many:  # too many to look for the shortest order
        routes = routes * (48 // len(routes) + 1)
    schedule = schedule_layer_calls(routes)
    done = [[] for _ in routes]
    kept = [{} for _ in routes]
    for call in schedule.calls:
        for route_step in call.steps:
            step = routes[route_step.route].steps[route_step.step]
            assert step.layer == call.layer
            assert route_step.step == len(done[route_step.route])
            if step.add:  # the state that is added is the one that was kept
                assert kept[route_step.route][route_step.add_slot] == route_step.step - step.add.back - 1
                assert route_step.coefficient == step.add.coefficient
            else:
                assert route_step.add_slot == -1
            done[route_step.route].append(call.layer)
            if route_step.keep_slot >= 0:
                assert route_step.keep_slot < schedule.kept_states
                kept[route_step.route][route_step.keep_slot] = route_step.step
    assert done == [[step.layer for step in route.steps] for route in routes]


def test_similar_routes_share_their_layer_calls():
    routes = [parse_route(text, 12) for text in ("L0 RJ", "L0-L5 L3 RJ", "L0-L7 L3 RJ")]
    schedule = schedule_layer_calls(routes)
    assert len(schedule.calls) == 12 + 5  # the longer repeat contains the other
    assert sum(len(call.steps) for call in schedule.calls) == 12 + 15 + 17


def test_many_routes_that_jump_back_share_the_next_sweep():
    layers = 28
    repeats = [[*range(end), *range(begin, layers)] for end in range(1, layers + 1) for begin in range(end)]
    merged = merge_layer_orders_fast(repeats)
    for order in repeats:  # each is what is left when some layers are left out
        rest = iter(merged)
        assert all(layer in rest for layer in order)
    # Two sweeps hold all repeats of blocks, and of single layers, too.
    assert len(merged) == 2 * layers
    # A single one is taken along at once.
    assert merge_layer_orders_fast([[0, 1, 2, 1, 2, 3], [0, 1, 2, 3]]) == [0, 1, 2, 1, 2, 3]


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=12), min_size=1, max_size=60))
@settings(deadline=None, max_examples=60)
def test_a_merged_order_contains_each(orders):
    fast, short = merge_layer_orders_fast(orders), merge_layer_orders(orders)
    # Nobody needs more sweeps through the layers than it goes back, or stays, itself.
    sweeps = max(1 + sum(after <= before for before, after in pairwise(order)) for order in orders)
    assert len(short) <= len(fast) <= min(sum(map(len, orders)), sweeps * (1 + max(map(max, orders))))
    for merged in (fast, short):
        for order in orders:
            rest = iter(merged)
            assert all(layer in rest for layer in order)


def test_cache_regions_do_not_overlap_and_hold_prompt_and_text():
    groups = [RoutesOverSamePrompts(ROUTES, PROMPTS), RoutesOverSamePrompts(ROUTES[:1], PROMPTS[:2])]
    plan = plan_batches(groups, new_tokens=7)
    table = plan.sequence_table
    taken = np.zeros(plan.planned_cache_tokens, dtype=int)
    for batch in plan.batches:
        for index, route in enumerate(batch.routes):
            sequences = range(*batch.sequences_of_route(index).indices(len(table)))
            for sequence in sequences:
                for step in range(route.length):
                    begin = table.cache_start[sequence] + step * table.step_stride[sequence]
                    taken[begin : begin + batch.tokens_per_cache_region] += 1
    assert (taken == 1).all()
    assert plan.num_sequences == len(ROUTES) * len(PROMPTS) + 2
    assert [
        [len(rows) for rows in group] for group in plan.arrange_results_by_route_and_prompt(range(plan.num_sequences))
    ] == [
        [len(PROMPTS)] * len(ROUTES),
        [2],
    ]


def test_finished_sequences_get_no_rows():
    schedule, table = (
        schedule_layer_calls(ROUTES),
        plan_batches([RoutesOverSamePrompts(ROUTES, PROMPTS)], 5).sequence_table,
    )
    all_active = np.ones(len(table), dtype=bool)
    assert assign_rows_to_sequences(schedule, table, all_active, 64).num_sequences == len(table)
    first = assign_rows_to_sequences(schedule, table, table.route == 1, 64)
    assert [call.layer for call in first.calls] == [step.layer for step in ROUTES[1].steps]
    assert all(call.same_rows_next for call in first.calls[:-1])  # one route alone has the same rows throughout
    assert set(first.live_sequences[: first.num_sequences]) == set(np.flatnonzero(table.route == 1))
    assert [pad_row_count(rows) for rows in (1, 17, 65, 145, 500, 1100)] == [16, 32, 96, 160, 512, 1280]


def _assign_one_by_one(schedule, table, active, max_rows):
    """Step after step: what ``assign_rows_to_sequences`` does for all steps of a layer call at once."""
    of_route = [np.flatnonzero(active & (table.route == route)) for route in range(max(table.route) + 1)]
    calls = [call for call in schedule.calls if any(len(of_route[route_step.route]) for route_step in call.steps)]
    indices = np.full((4, len(calls), max_rows), -1, dtype=np.int32)
    coefficients = np.zeros((len(calls), max_rows), dtype=np.float32)
    for number, call in enumerate(calls):
        row = 0
        for route_step in call.steps:
            for sequence in of_route[route_step.route]:
                region = table.cache_start[sequence] + route_step.step * table.step_stride[sequence]
                indices[:, number, row] = sequence, region, route_step.add_slot, route_step.keep_slot
                coefficients[number, row] = torch.tensor(route_step.coefficient)
                row += 1
    return calls, indices, coefficients


@given(
    st.lists(programs(LAYERS).map(lambda program: program.to_route(LAYERS)), min_size=1, max_size=5, unique=True),
    st.data(),
)
@settings(deadline=None, max_examples=60)
def test_rows_assigned_at_once_equal_rows_assigned_one_by_one(routes, data):
    groups = [
        RoutesOverSamePrompts(routes, PROMPTS),
        *(RoutesOverSamePrompts([route], PROMPTS[:2]) for route in routes),
    ]
    plan = plan_batches(groups, 5)
    schedule, table = schedule_layer_calls(plan.routes), plan.sequence_table
    active = np.array(data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table))))
    max_rows = pad_row_count(len(table))
    actual = assign_rows_to_sequences(schedule, table, active, max_rows)
    calls, indices, coefficients = _assign_one_by_one(schedule, table, active, max_rows)
    assert [call.layer for call in actual.calls] == [call.layer for call in calls]
    assert np.array_equal(actual.indices, indices)
    assert np.array_equal(actual.coefficients, coefficients)
    assert actual.num_sequences == active.sum()


def test_stages_that_the_kernels_do_not_support():
    assert kernels_support_stages(STAGES)
    assert not kernels_support_stages(
        (DecodingStage(ENDS, 3), DecodingStage(ENDS, 2))
    )  # no forced tokens between the two
    assert not kernels_support_stages((DecodingStage(frozenset(range(MAX_STAGE_TOKENS + 1)), 3),))


@pytest.mark.parametrize("name", VARIANTS)
def test_other_architectures_are_rejected_with_a_reason(name):
    model = tiny_model(name, **HEADS)
    reason = find_fused_unsupported_reason(model, interpreted=True)
    assert (reason is None) == (name.split(" ")[0] in SUPPORTED_MODEL_TYPES), reason
    if reason is not None:
        with pytest.raises(ModelError, match="cannot use the fused decoder"):
            FusedDecoder(model, graphs=False)


def test_attention_that_leaves_out_the_soft_cap_is_rejected():
    model = tiny_model("gemma2", **HEADS)
    model.config._attn_implementation = "sdpa"
    assert "leaves out the soft cap" in find_fused_unsupported_reason(model, interpreted=True)


def test_without_a_gpu_decoding_is_eager():
    model = tiny_model("llama", **HEADS)
    assert "CUDA" in fused_unsupported_reason(model)
    assert fused_unsupported_reason(model, EAGER) is not None
    with pytest.raises(ModelError, match="decoder = fused cannot be used: it is not on a CUDA device"):
        fused_unsupported_reason(model, FUSED)
