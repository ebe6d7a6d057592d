"""Written answers of mixtures: eager decoding against recomputing every token, fused decoding against eager."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from macro_routing.engine.fused import batch_plan, model_runner
from macro_routing.engine.fused.batch_plan import RoutesOverSamePrompts, plan_batches
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.fused.device_tables import assign_rows_to_sequences
from macro_routing.engine.generation import DecodingStage, GeneratedText, GenerationRequest
from macro_routing.engine.layer_schedule import schedule_layer_calls
from macro_routing.engine.route_generation import generate_for_pairs, generate_for_routes
from macro_routing.errors import RouteError
from macro_routing.models import apply_route
from macro_routing.models.find_decoder import get_decoder
from macro_routing.routes import Route, parse_route
from macro_routing.routes.mixture import Mixture, parse_mixture
from tests.engine.test_generation import PROMPTS
from tests.engine.test_shared_likelihood import COMMON_PREFIX
from tests.models.tiny import LAYERS, VARIANTS, tiny_model

ENDS = frozenset(range(3, 12))
TWO = (DecodingStage(ENDS, 5, (50, 51)), DecodingStage(ENDS, 3))
STANDARD, SKIP = Route.standard(LAYERS), parse_route("L0 L2 RJ", LAYERS)
PAIR = parse_mixture("1.7 [L0 RJ] - 0.7 [L0 L2 RJ]", LAYERS)
TRIPLE = parse_mixture("[L0-L3 L1(+h-2) RJ] + 0.4 [L0-L2] - 0.5 [L0 RJ]", LAYERS)
HEADS = {"head_dim": 32}


@cache
def make_model(name="llama", layers=LAYERS):
    return tiny_model(name, **HEADS, num_hidden_layers=layers)


def choose_next_token(members, mixture, ids):
    """By the definition: every member reads the whole text, nothing is cached."""
    with torch.no_grad():
        outputs = [member(torch.tensor([ids]), use_cache=False).logits[0, -1].double() for member in members]
    log_probs = [output.log_softmax(-1) for output in outputs]
    reference = log_probs[mixture.reference]
    total = sum(weight * values for weight, values in zip(mixture.weights, log_probs, strict=True))
    plausible = reference >= reference.max() + math.log(0.1)
    return int(torch.where(plausible, total, -math.inf).argmax())


def write_plainly(model, mixture, prompt, stages):
    members = [apply_route(model, route) for route in mixture.routes]
    ids, texts = list(prompt), []
    for stage in stages:
        tokens = []
        while len(tokens) < stage.max_tokens:
            token = choose_next_token(members, mixture, ids + tokens)
            if token in stage.end_tokens:
                break
            tokens.append(token)
        texts.append(GeneratedText(tuple(tokens), truncated=len(tokens) == stage.max_tokens))
        ids += [*tokens, *stage.forced_tokens]
    return tuple(texts)


@pytest.mark.parametrize("name", VARIANTS)
def test_eager_texts_are_those_of_recomputing_every_token(name):
    model = tiny_model(name)
    prompts = [(*COMMON_PREFIX, *prompt) for prompt in PROMPTS[:2]]
    actual = generate_for_routes(model, [SKIP, PAIR, TRIPLE], prompts, GenerationRequest(TWO))
    for mixture in (PAIR, TRIPLE):
        assert actual[mixture] == [write_plainly(model, mixture, prompt, TWO) for prompt in prompts]
    assert actual[SKIP] == generate_for_routes(model, [SKIP], prompts, GenerationRequest(TWO))[SKIP]
    assert actual[PAIR] != actual[SKIP]


def test_a_mixture_of_one_is_its_route(monkeypatch):
    """Bit for bit: both take the same way, and only the route is decoded."""
    model, request, decoded = make_model(), GenerationRequest(TWO), []
    single, scaled = Mixture.from_route(SKIP), parse_mixture("3 [L0 L2 RJ]", LAYERS)
    texts = generate_for_routes(model, [single, SKIP, scaled], PROMPTS, request)
    assert texts[single] == texts[SKIP] == texts[scaled]
    decoder = FusedDecoder(model, graphs=False)
    monkeypatch.setattr(
        decoder, "generate_for_routes", lambda routes, *_: decoded.extend(routes) or {SKIP: texts[SKIP]}
    )
    assert generate_for_routes(model, [single, SKIP, scaled], PROMPTS, request, decoder) == texts
    assert decoded == [SKIP]


def test_members_share_their_prompts_pass_and_finished_rows_leave():
    model, shapes = make_model(), []
    handle = get_decoder(model).layers[0].register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0].shape)))
    generate_for_routes(model, [PAIR], PROMPTS, GenerationRequest((DecodingStage(ENDS, 30),)))
    handle.remove()
    assert sum(shape[1] > 1 for shape in shapes) == 1  # both members begin with layer 0
    rows = [shape[0] for shape in shapes if shape[1] == 1]
    assert min(rows) < len(PROMPTS)


@pytest.mark.parametrize("stages", [(DecodingStage((), 90),), (DecodingStage((), 90, (50, 51)), DecodingStage((), 60))])
def test_stopped_loops_give_the_text_of_the_full_run(stages):
    model = tiny_model("llama")
    for layer in get_decoder(model).layers:
        layer.self_attn.o_proj.weight.data.zero_()  # the next token depends on the last one alone
    full, stopped = (
        generate_for_routes(model, [PAIR], PROMPTS, GenerationRequest(stages, stop_loops=stop))
        for stop in (False, True)
    )
    assert stopped == full


def test_pairs_of_mixtures_and_routes_are_generated_as_one_by_one():
    model, request = make_model(), GenerationRequest(TWO)
    pairs = list(zip([PAIR, SKIP, TRIPLE, PAIR], PROMPTS, strict=True))
    expected = [generate_for_routes(model, [route], [prompt], request)[route][0] for route, prompt in pairs]
    assert generate_for_pairs(model, pairs, request) == expected


# --- fused --------------------------------------------------------------------------------------------------------


SHALLOW = 3
"""Layers of the models here: interpreted kernels take long."""
SHALLOW_PAIR = parse_mixture("1.7 [L0 RJ] - 0.7 [L0 L2 RJ]", SHALLOW)
SHALLOW_TRIPLE = parse_mixture("[L0-L2 L1(+h-2) RJ] + 0.4 [L0-L1] - 0.5 [L0 RJ]", SHALLOW)
SHALLOW_BACKWARDS = parse_mixture("- 1 [L0 RJ]", SHALLOW)


def assert_fused_equals_eager(model, routes, prompts, stages):
    request, decoder = GenerationRequest(stages), FusedDecoder(model, graphs=False)
    expected = generate_for_routes(model, routes, prompts, request)
    assert generate_for_routes(model, routes, prompts, request, decoder) == expected
    return expected, decoder


@pytest.mark.parametrize(
    ("name", "mixture"),
    [("llama", SHALLOW_PAIR), ("qwen2", SHALLOW_BACKWARDS), ("qwen3", SHALLOW_TRIPLE)],
    ids=["llama", "qwen2", "qwen3"],
)
def test_fused_texts_equal_eager_texts(name, mixture, monkeypatch):
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 1)
    monkeypatch.setattr(model_runner, "_VOCABULARY_BLOCK", 64)  # two blocks
    stages = (DecodingStage(ENDS, 3, (50, 51)), DecodingStage(ENDS, 2))
    texts, decoder = assert_fused_equals_eager(make_model(name, SHALLOW), [mixture], PROMPTS[:2], stages)
    assert any(text.truncated for row in texts[mixture] for text in row)
    first, *others = decoder.runner.token_log[:, : 2 * len(mixture.members)].split(2, dim=1)
    assert all(torch.equal(log, first) for log in others)  # every member gets the chosen tokens


def test_logits_of_a_mixture_are_never_split(monkeypatch):
    """Rows of a mixture's members are combined, so they have to be in memory together."""
    monkeypatch.setattr(model_runner, "_LOGIT_ROWS", 8)  # two mixtures of three routes, and two rows of padding
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 1)
    monkeypatch.setattr(batch_plan, "MAX_PREFILL_TOKENS", 10)  # two batches
    other = parse_mixture("0.5 [L0 RJ] + 0.5 [L0-L1] - 0.2 [L0 L2 RJ]", SHALLOW)
    assert_fused_equals_eager(
        make_model(layers=SHALLOW), [SHALLOW_TRIPLE, other], PROMPTS[:2], (DecodingStage(ENDS, 2),)
    )


def test_fused_pairs_of_mixtures_and_routes_equal_eager_pairs(monkeypatch):
    monkeypatch.setattr(batch_plan, "MAX_SEQUENCES", 3)  # several groups
    monkeypatch.setattr(model_runner, "_MAX_SPLITS", 1)
    model, request = make_model(layers=SHALLOW), GenerationRequest((DecodingStage(ENDS, 1),))
    skip = parse_route("L0 L2 RJ", SHALLOW)
    pairs = list(zip([SHALLOW_PAIR, skip, SHALLOW_BACKWARDS, SHALLOW_PAIR], PROMPTS, strict=True))
    actual = generate_for_pairs(model, pairs, request, FusedDecoder(model, graphs=False))
    assert actual == generate_for_pairs(model, pairs, request)


def test_members_of_a_row_are_neighbours_until_their_row_is_finished():
    other = parse_mixture("2 [L0 RJ] - [L0-L3 L3 RJ]", LAYERS)
    groups = [RoutesOverSamePrompts.from_routes([PAIR, other], PROMPTS)]
    plan = plan_batches(groups, 5)
    table, schedule = plan.sequence_table, schedule_layer_calls(plan.routes)
    assert [str(plan.routes[route]) for route in table.route[table.order[:4]]] == ["L0 RJ", "L0 L2 RJ"] * 2
    active = np.ones(len(table), dtype=bool)
    active[table.order[2:4]] = False  # the second prompt of the first mixture
    live = assign_rows_to_sequences(schedule, table, active, 64).live_sequences
    assert live[: active.sum()].tolist() == [*table.order[:2], *table.order[4:]]
    assert table.weight[table.order[:2]].tolist() == pytest.approx([1.7, -0.7])


@pytest.mark.parametrize("fused", [False, True])
def test_a_mixture_that_only_compares_choices_writes_nothing(fused):
    pmi = parse_mixture("1.5 [L0 RJ] - 0.5 [L0 RJ | no question]", SHALLOW)
    model = make_model("llama", SHALLOW)
    decoder = FusedDecoder(model, graphs=False) if fused else None
    with pytest.raises(RouteError, match="only compares choices by likelihood"):
        generate_for_routes(model, [pmi], PROMPTS[:1], GenerationRequest(TWO), decoder)
    with pytest.raises(RouteError, match="only compares choices by likelihood"):
        generate_for_pairs(model, [(pmi, PROMPTS[0])], GenerationRequest(TWO), decoder)
