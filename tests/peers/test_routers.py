"""Dr.LLM's routers: what they see, what they decide, how they learn, and that the model takes no part in it."""

import copy
import json
import math

import pytest
import torch
from torch import nn

from macro_routing.errors import ModelError, RouteError, RouteOutsideSpaceError, SettingsError
from macro_routing.models import apply_lm_head, apply_route, collect_hidden_states, freeze_model
from macro_routing.models.find_decoder import get_decoder
from macro_routing.peers.layer_router import LayerRouters, run_prompts_deciding_layer_counts, train_layer_routers
from macro_routing.peers.layerwise_prompt_batch import PaddedPromptBatch
from macro_routing.peers.program_router import ProgramRouters, choose_actions_while_prompts_run, train_program_routers
from macro_routing.peers.router_network import StackedRouters, pool_windows
from macro_routing.peers.router_settings import RouterSettings
from macro_routing.peers.router_training import (
    TrainingExamples,
    compute_class_weights,
    fit_routers,
    focal_loss,
)
from macro_routing.routes import Route, parse_route
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.space import RouteSpace
from macro_routing.search.tree_actions import route_from_drllm_label
from tests.models.tiny import LAYERS, VARIANTS, VOCABULARY, tiny_model

WIDTH = 32
QUICK = RouterSettings(hidden=16, epochs=25, learning_rate=0.02, accumulation=4)
COUNTS = {3: (1, 0, 2, 1, 1, 1), 4: (1, 1, 1, 0, 1, 2), 5: (2, 1, 1, 1, 0, 1)}
SPACE = RouteSpace(LAYERS, max_length=9, radius=3, window=2)
PROGRAMS = {3: parse_program("L0-L3 L1(+h-2) L2 RJ"), 4: parse_program("L0 L2 L2 RJ"), 5: parse_program("L0 L0 RJ")}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def frozen():
    return freeze_model(tiny_model("llama"))


def _prompts(count=24, seed=0):
    """Prompts of 1 to 20 tokens that begin with 3, 4 or 5."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 20, (count,), generator=generator).tolist()
    return [
        (3 + place % 3, *torch.randint(6, VOCABULARY, (length,), generator=generator).tolist())
        for place, length in enumerate(lengths)
    ]


def _counts(prompts):
    return [COUNTS[prompt[0]] for prompt in prompts]


def _programs(prompts):
    return [PROGRAMS[prompt[0]] for prompt in prompts]


def _untrained(frozen, seed=0):
    generator = torch.Generator().manual_seed(seed)
    routers = StackedRouters(frozen.layers, WIDTH, 3, 16, generator).requires_grad_(requires_grad=False)
    return LayerRouters(routers, RouterSettings(hidden=16), frozen.weights_id)


def _untrained_programs(frozen, seed=0):
    generator = torch.Generator().manual_seed(seed)
    routers = StackedRouters(SPACE.max_length - 1, WIDTH, SPACE.action_count, 16, generator)
    routers.requires_grad_(requires_grad=False)
    return ProgramRouters(routers, SPACE, RouterSettings(hidden=16), frozen.weights_id)


@pytest.fixture(scope="module")
def trained(frozen):
    prompts = _prompts()
    return train_layer_routers(frozen, prompts, _counts(prompts), QUICK, seed=1)


@pytest.fixture(scope="module")
def trained_programs(frozen):
    prompts = _prompts()
    return train_program_routers(frozen, SPACE, prompts, _programs(prompts), QUICK, seed=1)


# --- what routers see ---------------------------------------------------------------------------------------------


def pool_one_prompt(state, windows):
    """Window by window, as it reads: the mean of each, the longer ones first."""
    parts = state.float().tensor_split(min(windows, len(state)))
    return torch.stack([part.mean(dim=0) for part in parts])


@pytest.mark.parametrize(("tokens", "sizes"), [(1, [1]), (5, [1] * 5), (8, [1] * 8), (20, [3, 3, 3, 3, 2, 2, 2, 2])])
def test_windows_are_as_equal_as_whole_tokens_allow(tokens, sizes):
    state = torch.arange(2.0 * tokens).reshape(tokens, 2)
    expected, start = [], 0
    for size in sizes:
        rows = [state[start + offset] for offset in range(size)]
        expected.append(sum(rows) / size)
        start += size
    (pooled,), (shares,) = pool_windows([state], 8)
    assert torch.allclose(pooled[: len(sizes)], torch.stack(expected))
    assert not pooled[len(sizes) :].any()
    assert shares.tolist() == pytest.approx([1 / len(sizes)] * len(sizes) + [0.0] * (8 - len(sizes)))


_GPU = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", _GPU])
def test_many_prompts_are_pooled_together_as_one_by_one(dtype, device):
    generator = torch.Generator().manual_seed(5)
    wide = torch.randn(40, 60, WIDTH, generator=generator).to(device, dtype)
    states = [row[-tokens:] for tokens, row in enumerate(wide, 1)]  # views of one tensor, as a batch gives them
    pooled, shares = pool_windows(states, 8)
    assert pooled.dtype == shares.dtype == torch.float32
    for state, own, share in zip(states, pooled, shares, strict=True):
        expected = pool_one_prompt(state, 8)
        assert torch.allclose(own[: len(expected)], expected, atol=1e-6)
        assert torch.allclose(share @ own, expected.mean(dim=0), atol=1e-6)


def test_a_router_is_what_torch_calls_it():
    generator = torch.Generator().manual_seed(3)
    routers = StackedRouters(2, WIDTH, 3, 16, generator)
    states = [torch.randn(tokens, WIDTH, generator=generator) for tokens in (1, 5, 8, 20)]
    pooled, shares = pool_windows(states, 8)
    for number in range(2):
        plain = _plain_router(routers, number)
        expected = torch.stack([plain(pool_one_prompt(state, 8)).mean(dim=0) for state in states])
        assert torch.allclose(routers.forward_one_router(number, pooled, shares), expected, atol=1e-6)
        together = routers(pooled[:, None].expand(-1, 2, -1, -1), shares)
        assert torch.allclose(together[:, number], expected, atol=1e-6)


def _plain_router(routers, number):
    plain = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 3))
    with torch.no_grad():
        plain[0].weight.copy_(routers.inner[number].T)
        plain[0].bias.copy_(routers.inner_bias[number])
        plain[2].weight.copy_(routers.outer[number].T)
        plain[2].bias.copy_(routers.outer_bias[number])
    return plain


@pytest.mark.parametrize("name", VARIANTS)
def test_layers_run_on_some_rows_give_what_the_routed_models_give(name):
    """Rows of different routes in one padded batch, against each prompt alone in its routed model."""
    model = tiny_model(name)
    prompts = [(5, 6, 7), tuple(range(10, 22)), (9,), tuple(range(30, 37))]
    labels = [COUNTS[3], COUNTS[4], (0, 0, 0, 0, 0, 1), COUNTS[5]]
    batch = PaddedPromptBatch(model, prompts)
    state = batch.embedded
    for layer in range(LAYERS):
        for times in (1, 2):
            state = batch.apply_layer(layer, [row for row, label in enumerate(labels) if label[layer] >= times], state)
    for own, prompt, label in zip(batch.remove_padding(state, range(4)), prompts, labels, strict=True):
        with torch.no_grad():
            expected = apply_route(model, route_from_drllm_label(label))(torch.tensor([prompt])).logits
        assert torch.allclose(apply_lm_head(model, own[None]), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3_text"])
def test_a_router_sees_the_state_of_the_route_decided_so_far(name):
    frozen = freeze_model(tiny_model(name))
    prompts = _prompts(6)
    routers = _untrained(frozen, seed=5)
    seen = {}

    def choose(places, layer, states):
        seen.update({(place, layer): state for place, state in zip(places, states, strict=True)})
        return routers.compute_logits(layer, states).argmax(dim=-1).tolist()

    counts = run_prompts_deciding_layer_counts(frozen, prompts, choose, max_batch_tokens=64)
    assert [route_from_drllm_label(each) for each in counts] == routers.decide_routes(
        frozen, prompts, max_batch_tokens=64
    )
    assert len(set(counts)) > 1  # or the rows of a batch were never apart
    for place, prompt in enumerate(prompts):
        ids = torch.tensor([prompt])
        embedded = get_decoder(frozen.model)(ids, output_hidden_states=True).hidden_states[0]
        states = [
            embedded,
            *collect_hidden_states(apply_route(frozen.model, route_from_drllm_label(counts[place])), ids),
        ]
        for layer in range(LAYERS):
            expected = states[sum(counts[place][:layer])][0]
            assert torch.allclose(seen[place, layer], expected, atol=1e-4), (place, layer)


# --- decisions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen3 with sliding layers", "mixtral"])
def test_neighbours_change_nothing(name):
    frozen = freeze_model(tiny_model(name))
    prompts = _prompts(12)
    routers = _untrained(frozen, seed=2)

    def logits_of(prompts, max_batch_tokens):
        found = {}

        def choose(places, layer, states):
            logits = routers.compute_logits(layer, states)
            found.update({(place, layer): row for place, row in zip(places, logits, strict=True)})
            return logits.argmax(dim=-1).tolist()

        run_prompts_deciding_layer_counts(frozen, prompts, choose, max_batch_tokens=max_batch_tokens)
        return found

    together = logits_of(prompts, 10_000)
    for place, prompt in enumerate(prompts):
        alone = logits_of([prompt], 10_000)
        for layer in range(LAYERS):
            assert torch.allclose(together[place, layer], alone[0, layer], atol=1e-4)
    one_by_one = [routers.decide_routes(frozen, [prompt])[0] for prompt in prompts]
    assert len(set(one_by_one)) > 1
    assert (
        routers.decide_routes(frozen, prompts)
        == one_by_one
        == routers.decide_routes(frozen, prompts, max_batch_tokens=40)
    )


def test_when_all_layers_would_be_skipped_the_last_is_executed(frozen):
    routers = _untrained(frozen)
    routers.routers.outer_bias[:, 0] += 100
    assert routers.decide_routes(frozen, [(5, 6), (7,)]) == [parse_route("L5", LAYERS)] * 2
    assert routers.decide_routes(frozen, []) == []


@pytest.mark.filterwarnings("ignore:.*mkldnn")  # torch warns on processors without bfloat16, and computes all the same
def test_a_model_in_half_precision_is_decided_in_single(frozen):
    half = freeze_model(tiny_model("llama").bfloat16())
    routers = LayerRouters(_untrained(frozen).routers, RouterSettings(hidden=16), half.weights_id)
    assert len(routers.decide_routes(half, _prompts(3))) == 3
    assert routers.compute_logits(0, [torch.ones(2, WIDTH, dtype=torch.bfloat16)]).dtype == torch.float32


def test_what_cannot_be_decided_is_rejected(frozen):
    routers = _untrained(frozen)
    with pytest.raises(ModelError, match="prompt 2 has no tokens"):
        routers.decide_routes(frozen, [(5,), ()])
    with pytest.raises(ModelError, match="another model"):
        routers.decide_routes(freeze_model(tiny_model("llama", seed=9)), [(5,)])


# --- training -----------------------------------------------------------------------------------------------------


def test_focal_loss_by_hand():
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.5, 0.5, 0.5], [0.0, -math.inf, 1.0]])
    targets, weights = torch.tensor([0, 2, 2]), torch.tensor([0.5, 1.0, 2.0])
    found = focal_loss(logits, targets, weights, 2.0)
    for row, (values, target) in enumerate(zip(logits.tolist(), targets.tolist(), strict=True)):
        p = math.exp(values[target]) / sum(math.exp(value) for value in values)
        assert found[row].item() == pytest.approx(-weights[target].item() * (1 - p) ** 2 * math.log(p), rel=1e-5)
    plain = nn.functional.cross_entropy(logits, targets, reduction="none")
    assert torch.allclose(focal_loss(logits, targets, torch.ones(3), 0.0), plain, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_a_decision_that_is_certain_has_a_sound_gradient(gamma):
    logits = torch.tensor([[200.0, 0.0, -math.inf]], requires_grad=True)
    focal_loss(logits, torch.tensor([0]), torch.ones(3), gamma).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_class_weights_by_hand():
    beta = 0.999
    inverse = [(1 - beta) / (1 - beta**10), 0.0, (1 - beta) / (1 - beta**1000)]
    expected = [2 * value / sum(inverse) for value in inverse]
    assert compute_class_weights([10, 0, 1000], beta).tolist() == pytest.approx(expected, rel=1e-6)
    assert compute_class_weights([10, 0, 1000], 0.0).tolist() == [1, 0, 1]
    assert compute_class_weights([1, 3, 0], 1.0).tolist() == pytest.approx([1.5, 0.5, 0])


def test_training_is_prompt_by_prompt_with_accumulated_gradients():
    """The stacked, grouped training against separate routers that see one prompt at a time."""
    settings = RouterSettings(hidden=16, epochs=3, accumulation=2, learning_rate=0.01, weight_decay=0.1)
    generator = torch.Generator().manual_seed(4)
    examples = TrainingExamples.create_empty(prompts=5, routers=2, classes=3, windows=8, width=WIDTH)
    examples.allowed[:, 1, 0] = False
    # By prompt: (router, state, right class); the fourth prompt's label has ended before the second router.
    decisions = [
        [(router, torch.randn(place + 2, WIDTH, generator=generator), target) for router, target in enumerate(targets)]
        for place, targets in enumerate([(0, 1), (1, 1), (2, 1), (1,), (0, 2)])
    ]
    for place, own in enumerate(decisions):
        for router, state, target in own:
            examples.record_router_targets([place], router, [state], [target])
    drawing = torch.Generator().manual_seed(7)
    routers = StackedRouters(2, WIDTH, 3, 16, drawing)
    plain = [_plain_router(routers, number) for number in range(2)]
    after_weights = drawing.get_state()
    report = fit_routers(routers, examples, settings, drawing)
    drawing.set_state(after_weights)
    losses = _train_plainly(plain, decisions, settings, drawing)
    for number, one in enumerate(plain):
        assert torch.allclose(routers.inner[number].T, one[0].weight, atol=1e-5)
        assert torch.allclose(routers.outer_bias[number], one[2].bias, atol=1e-5)
    assert report.class_counts == (2, 5, 2)
    assert report.losses == pytest.approx(losses, rel=1e-4)


def _train_plainly(plain, decisions, settings, drawing):
    weights = compute_class_weights([2, 5, 2], settings.effective_beta)
    parameters = [value for one in plain for value in one.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    for value in parameters:
        value.grad = torch.zeros_like(value)
    step, epochs = 0, []
    for _ in range(settings.epochs):
        epochs.append(0.0)
        for group in torch.randperm(len(decisions), generator=drawing).split(settings.accumulation):
            optimizer.zero_grad(set_to_none=False)  # a router without a decision in this group moves on all the same
            for place in group.tolist():
                loss = sum(_plain_loss(plain, weights, *decision) for decision in decisions[place])
                loss = loss / len(decisions[place])
                (loss / len(group)).backward()
                epochs[-1] += loss.item() / len(decisions)
            for entry in optimizer.param_groups:
                entry["lr"] = settings.learning_rate * (1 + math.cos(math.pi * step / 9)) / 2
            optimizer.step()
            step += 1
    return epochs


def _plain_loss(plain, weights, router, state, target):
    logits = plain[router](pool_one_prompt(state, 8)).mean(dim=0)
    if router == 1:
        logits = torch.cat([torch.tensor([-math.inf]), logits[1:]])
    return focal_loss(logits[None], torch.tensor([target]), weights, 2.0)[0]


def test_routers_learn_what_the_first_token_says(frozen, trained):
    routers, report = trained
    prompts = _prompts()
    decided = routers.decide_routes(frozen, prompts)
    pairs = [
        (sum(step.layer == layer for step in route.steps), label[layer])
        for route, label in zip(decided, _counts(prompts), strict=True)
        for layer in range(LAYERS)
    ]
    assert sum(one == other for one, other in pairs) > 0.9 * len(pairs)
    assert report.accuracy > 0.9
    assert report.losses[-1] < report.losses[0] / 4
    assert report.class_counts == (24, 96, 24)
    assert report.prompts == 24


def test_the_model_stays_as_it_is():
    model = tiny_model("qwen2")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    frozen = freeze_model(model)
    prompts = _prompts(6)
    quick = RouterSettings(hidden=4, epochs=2)
    train_layer_routers(frozen, prompts, _counts(prompts), quick, 0)
    train_program_routers(frozen, SPACE, prompts, _programs(prompts), quick, 0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(value.requires_grad or value.grad is not None for value in model.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


def test_a_seed_decides_everything_and_nothing_else_is_touched(frozen):
    prompts = _prompts(6)
    quick = RouterSettings(hidden=4, epochs=2, accumulation=2)
    torch.manual_seed(123)
    global_state = torch.get_rng_state()
    one, other, third = (train_layer_routers(frozen, prompts, _counts(prompts), quick, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), global_state)
    assert torch.equal(one.routers.inner, other.routers.inner)
    assert torch.equal(one.routers.outer, other.routers.outer)
    assert not torch.equal(one.routers.inner, third.routers.inner)
    assert not any(value.requires_grad or value.grad is not None for value in one.routers.parameters())


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ([], SettingsError, "1 prompts and 0 labels"),
        ([(1, 1)], RouteError, "label 1 is for 2 layers"),
        ([(1, 1, 3, 1, 1, 1)], RouteError, "layer 2 is to be applied 3 times"),
        ([(0,) * 6], RouteError, "cannot skip every layer"),
    ],
)
def test_labels_that_cannot_be_executed_are_rejected(frozen, labels, error, message):
    with pytest.raises(error, match=message):
        train_layer_routers(frozen, [(5, 6)], labels, QUICK, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden", 0), ("windows", 1.5), ("learning_rate", 0), ("effective_beta", 1.1), ("epochs", True)],
)
def test_impossible_settings_are_rejected_by_name(name, value):
    with pytest.raises(SettingsError, match=name):
        RouterSettings(**{name: value})


# --- files --------------------------------------------------------------------------------------------------------


def test_saved_routers_decide_the_same(frozen, trained, trained_programs, tmp_path):
    prompts = _prompts(12, seed=8)
    for number, (routers, _) in enumerate((trained, trained_programs)):
        routers.save(tmp_path / str(number))
        routers.save(tmp_path / str(number))  # over the old ones
        loaded = type(routers).load(tmp_path / str(number), frozen)
        assert loaded.settings == routers.settings
        assert loaded.decide_routes(frozen, prompts) == routers.decide_routes(frozen, prompts)
        assert torch.equal(loaded.routers.inner, routers.routers.inner)
    assert loaded.space == SPACE
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == ["routers.json", "routers.safetensors"]


def _edit(folder, **changes):
    path = folder / "routers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "routers.safetensors").write_bytes(b"x" * 40), "is damaged"),
        (lambda folder: (folder / "routers.json").write_bytes(b'{"format": "ma'), "is not JSON"),
        (lambda folder: (folder / "routers.json").write_bytes(b"\xff\xfe"), "is not JSON"),
        (lambda folder: (folder / "routers.json").write_bytes(b"[]"), "has the format"),
        (lambda folder: (folder / "routers.safetensors").unlink(), "no saved routers"),
        (lambda folder: _edit(folder, format="macro-routers/9"), "macro-routers/9"),
        (lambda folder: _edit(folder, kind="program"), "of the kind 'program'"),
        (lambda folder: _edit(folder, settings={"hiden": 3}), "unknown key 'hiden'"),
        (lambda folder: _edit(folder, settings=3), "invalid routers"),
        (lambda folder: _edit(folder, settings={"hidden": 5}), "does not hold these routers"),
        (lambda folder: _edit(folder, routers=7), "holds 7 routers"),
    ],
)
def test_damaged_files_are_rejected(frozen, trained, tmp_path, damage, message):
    folder = tmp_path / "routers"
    trained[0].save(folder)
    damage(folder)
    with pytest.raises(ModelError, match=message):
        LayerRouters.load(folder, frozen)


def test_truncated_weights_are_rejected(frozen, trained, tmp_path):
    trained[0].save(tmp_path / "routers")
    path = tmp_path / "routers" / "routers.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelError, match="is damaged"):
        LayerRouters.load(tmp_path / "routers", frozen)


@pytest.mark.parametrize(
    "changes", [{"space": None}, {"space": {"layers": 5}}, {"space": {"layers": 6, "window": 1}}, {"routers": 9}]
)
def test_program_routers_of_another_space_are_rejected(frozen, trained_programs, tmp_path, changes):
    trained_programs[0].save(tmp_path / "routers")
    _edit(tmp_path / "routers", **changes)
    with pytest.raises(ModelError, match="routers"):
        ProgramRouters.load(tmp_path / "routers", frozen)


def test_routers_of_another_model_are_rejected(trained, tmp_path):
    trained[0].save(tmp_path / "routers")
    with pytest.raises(ModelError, match="another model"):
        LayerRouters.load(tmp_path / "routers", freeze_model(tiny_model("llama", seed=9)))
    with pytest.raises(ModelError, match="there is no folder"):
        trained[0].save(tmp_path / "nowhere" / "routers")


# --- programs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3_text"])
def test_a_program_router_sees_the_state_of_its_own_program(name):
    frozen = freeze_model(tiny_model(name))
    space = RouteSpace(LAYERS, max_length=12, radius=3, window=2, coefficients=(1.0, -0.25))
    prompts = _prompts(8)
    texts = ["L0-L3 L1(+h-2) L2 L3(-0.25h-1) RJ", "L0 L2 L2 RJ", "L0 L1 L1(+h-1) L2 L4 RJ", "L0 RJ"]
    programs = [parse_program(texts[place % len(texts)]) for place in range(len(prompts))]
    labels = [space.program_to_actions(program) for program in programs]
    seen = {}

    def follow(places, positions, states):
        applied = positions[0].applied
        seen.update({(place, applied): state for place, state in zip(places, states, strict=True)})
        return [labels[place][applied - 1] for place in places]

    assert choose_actions_while_prompts_run(frozen, space, prompts, follow) == labels
    for place, (prompt, program) in enumerate(zip(prompts, programs, strict=True)):
        states = collect_hidden_states(apply_route(frozen.model, program.to_route(LAYERS)), torch.tensor([prompt]))
        for applied in range(1, len(program.steps) + 1):
            assert torch.allclose(seen[place, applied], states[applied - 1][0], atol=1e-4), (place, applied)
    assert len(seen) == sum(map(len, labels))


@pytest.mark.parametrize("seed", range(4))
def test_infeasible_actions_are_never_decided(frozen, seed):
    routers = _untrained_programs(frozen, seed)
    routers.routers.outer_bias[:, SPACE.rejoin_action] -= 100  # written to the end of the budget
    prompts = _prompts(8, seed)
    programs = routers.choose_program_per_prompt(frozen, prompts)
    for program, route in zip(programs, routers.decide_routes(frozen, prompts), strict=True):
        SPACE.check_route(program)
        SPACE.check_route(route)
        assert program.to_route(LAYERS) == route
        assert len(program.steps) > 1


def test_infeasible_actions_teach_nothing(frozen):
    settings = RouterSettings(hidden=16, epochs=2, weight_decay=0)
    routers, _ = train_program_routers(frozen, SPACE, [(5, 6)], [PROGRAMS[3]], settings, seed=3)
    untouched = _untrained_weights(routers, seed=3)
    feasible = torch.from_numpy(SPACE.feasibility_mask[1, 0].copy())  # what the first router may say
    changed = routers.routers.outer_bias[0] != untouched.outer_bias[0]
    assert torch.equal(changed, feasible)


def _untrained_weights(trained, seed):
    generator = torch.Generator().manual_seed(seed)
    return StackedRouters(trained.routers.router_count, WIDTH, SPACE.action_count, 16, generator)


def test_program_routers_decide_each_prompt_by_itself(frozen):
    routers = _untrained_programs(frozen, seed=3)
    prompts = _prompts(12)
    one_by_one = [routers.decide_routes(frozen, [prompt])[0] for prompt in prompts]
    assert len(set(one_by_one)) > 1
    assert (
        routers.decide_routes(frozen, prompts)
        == one_by_one
        == routers.decide_routes(frozen, prompts, max_batch_tokens=40)
    )


def test_program_routers_learn_what_the_first_token_says(frozen, trained_programs):
    routers, report = trained_programs
    prompts = _prompts()
    expected = [program.to_route(LAYERS) for program in _programs(prompts)]
    decided = routers.decide_routes(frozen, prompts)
    assert sum(one == other for one, other in zip(decided, expected, strict=True)) > 0.9 * len(prompts)
    assert report.accuracy > 0.9
    # Six actions of the longest label: beyond them nothing was learnt, and deciding rejoins.
    assert routers.routers.router_count == 6
    endless = copy.deepcopy(routers)
    endless.routers.outer_bias[:, SPACE.rejoin_action] -= 100
    assert max(len(program.steps) for program in endless.choose_program_per_prompt(frozen, prompts)) == 7


def test_a_program_of_the_greatest_length_has_no_router_for_its_forced_end(frozen):
    space = RouteSpace(LAYERS, max_length=7, radius=3, window=2)
    program = parse_program("L0 L0-L5 RJ")
    routers, report = train_program_routers(frozen, space, [(5, 6)], [program], RouterSettings(hidden=4, epochs=1), 0)
    assert routers.routers.router_count == 6
    assert sum(report.class_counts) == 6
    assert report.class_counts[space.rejoin_action] == 0


def test_programs_outside_the_space_are_rejected(frozen):
    with pytest.raises(RouteOutsideSpaceError, match="radius"):
        train_program_routers(frozen, SPACE, [(5, 6)], [parse_program("L0 L5 RJ")], QUICK, 0)
    with pytest.raises(SettingsError, match="for 4 layers"):
        train_program_routers(frozen, RouteSpace(4), [(5, 6)], [parse_program("L0 RJ")], QUICK, 0)


def test_counts_are_a_route():
    assert route_from_drllm_label(COUNTS[3]) == parse_route("L0 L2 L2 RJ", LAYERS)
    assert route_from_drllm_label((1,) * LAYERS) == Route.standard(LAYERS)
