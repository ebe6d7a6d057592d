"""vLLM itself, on CPU, in its own environment: routed models write what the routed transformers model writes."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.deploy.vllm.hf_overrides import ARCHITECTURES, make_route_overrides
from macro_routing.models import apply_route, load_model
from macro_routing.models.chat import encode_messages
from macro_routing.models.frozen import load_tokenizer
from macro_routing.models.load_options import LoadOptions
from macro_routing.routes import parse_route
from macro_routing.routes.mixture import to_mixture
from macro_routing.routes.notation import parse_route_or_mixture
from tests.deploy.server import ask_all, serving
from tests.deploy.vllm_environment import vllm_python, vllm_settings
from tests.models.tiny import LAYERS, tiny_model, tokens

ROUTES = {"standard": "L0 RJ", "plain": "L0-L3 L2 L2 L4", "adds": "L0-L3 L2(+0.5h-2) L3(-h-1) RJ"}
# Members that branch after an add's source, that end where others go on, and that share no layer.
MIXTURES = {
    "mixture": "[L0-L3 L2 RJ] + 0.5 [L0-L3 L3 RJ] - 0.4 [L0 RJ] - 0.2 [L0-L3 L1(+h-2) L2(-0.25h-1) RJ]",
    "mixture of prefixes": "[L0-L2] - 0.5 [L0 L4 RJ] + 0.25 [L0-L3] - 0.1 [L1 L0 L2 RJ]",
    "short mixture": "[L0-L2] - 0.5 [L0 L1 L3(+0.5h-1)] + 0.25 [L0 L1]",
}
EAGER = [(kind, route) for kind in ARCHITECTURES for route in ("standard", "adds", "mixture")]
EAGER += [("llama", "plain"), ("llama", "mixture of prefixes")]
# Few steps, since compiling takes as long as a route is: repeats, two adds, skips. The second differs from the first in
# a coefficient only: compiled code must not be taken for another route's.
SHORT = {"short adds": "L0 L3 L4 L3(+0.5h-2) L4(-h-1)", "other coefficient": "L0 L3 L4 L3(+2h-2) L4(-h-1)"}
COMPILED = [*(("llama", name) for name in SHORT), ("mixtral", "short adds"), ("llama", "short mixture")]
# A real model with as few: a repeat, an add, a skip.
REAL = "L0-L2 L1(+0.25h-2) L2 L28-L29"
SERVED = ["L0-L17 L17 L18(+0.25h-2) RJ", "1.7 [L0 RJ] - 0.7 [L0-L24 L26 RJ]"]
NEW_TOKENS = 16
QUESTIONS = ["The capital of France is", "Name a colour.", "What is 2 + 2?", "Say hello."]
pytestmark = pytest.mark.engines


def _route(name):
    texts = {**ROUTES, **MIXTURES, **SHORT}
    return parse_route_or_mixture(texts[name], LAYERS)


def _prompts():
    first, second, third = tokens(rows=3).tolist()
    return [first, second[:7], third[:3]]


def _write(model, prompt):
    ids = torch.tensor([prompt])
    written = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
    return written[0, len(prompt) :].tolist()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny model per architecture, in memory and on disk; vLLM has kernels for heads of 32 and more."""
    folder = tmp_path_factory.mktemp("tiny")
    made = {}
    for kind in ARCHITECTURES:
        made[kind] = tiny_model(kind, hidden_size=64, head_dim=32, num_attention_heads=2, num_key_value_heads=1)
        made[kind].save_pretrained(folder / kind)
    return made, folder


@pytest.fixture(scope="module")
def answers(models, tmp_path_factory):
    """All cases in one process, since starting vLLM takes longer than any of them."""
    made, folder = models
    place = tmp_path_factory.mktemp("vllm")
    cases = {(*case, "eager"): _case(made, folder, *case, eager=True) for case in EAGER}
    cases |= {(*case, "compiled"): _case(made, folder, *case, eager=False) for case in COMPILED}
    cases["real"] = _real_case()
    cases["qwen3", "mixture", "eager"]["prompts_to_score"] = _written(made)
    cases |= {("refused", name): case for name, case in _refused(_case(made, folder, "llama", "plain")).items()}
    (place / "cases.json").write_text(json.dumps(list(cases.values())))
    done = subprocess.run(
        [vllm_python(), Path(__file__).with_name("vllm_answers.py"), place / "cases.json", place / "answers.json"],
        env=vllm_settings(place, VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_ALLOW_INSECURE_SERIALIZATION="1"),
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return dict(zip(cases, json.loads((place / "answers.json").read_text()), strict=True))


def _written(made):
    """Prompts with tokens that a mixture finds plausible, and others."""
    mixed = apply_route(made["qwen3"], _route("mixture"))
    return [prompt + _write(mixed, prompt) for prompt in _prompts()]


def _case(made, folder, kind, route, *, eager=True):
    return {
        "folder": str(folder / kind),
        "overrides": make_route_overrides(_route(route), made[kind].config),
        "prompts": _prompts(),
        "new_tokens": NEW_TOKENS,
        "eager": eager,
    }


def _real_case():
    base = open_exportable_model("smollm2-135m")
    return {
        "folder": str(base.folder),
        "overrides": make_route_overrides(parse_route(REAL, base.layers), base.config),
        "prompts": _real_prompts(load_tokenizer(base.folder, base.name, LoadOptions())),
        "new_tokens": NEW_TOKENS,
        "eager": False,
    }


def _real_prompts(tokenizer):
    return [tokenizer(question).input_ids for question in QUESTIONS[:2]]


def _refused(sound):
    def changed(**overrides):
        return {**sound, "overrides": {**sound["overrides"], **overrides}}

    one_mixture = {"macro_layers": [[0, 1], [0, 1, 2]], "macro_adds": [[], []], "macro_weights": [1.5, -0.5]}
    return {
        "a layer too high": changed(macro_layers=[0, 1, LAYERS]),
        "code for a layer": changed(macro_layers=["__import__('os')"]),
        "another model's layers": changed(macro_model_layers=LAYERS + 1),
        "an add without a state": changed(macro_adds=[[0, 1, 1.0]]),
        "an adapter": {**sound, "settings": {"enable_lora": True}},
        "a weight of zero": changed(**{**one_mixture, "macro_weights": [1.5, 0.0]}),
        "embeddings of a mixture": {**changed(**one_mixture), "settings": {"runner": "pooling"}},
    }


@pytest.mark.parametrize(
    "case",
    [(*case, "eager") for case in EAGER] + [(*case, "compiled") for case in COMPILED],
    ids=" ".join,
)
def test_greedy_tokens_are_those_of_the_routed_transformers_model(case, models, answers):
    kind, name, _ = case
    routed = apply_route(models[0][kind], _route(name))
    assert answers[case]["tokens"] == [_write(routed, prompt) for prompt in _prompts()]


def test_log_probabilities_of_a_prompt_are_those_of_the_mixed_transformers_model(models, answers):
    mixed = apply_route(models[0]["qwen3"], _route("mixture"))
    for prompt, there in zip(_written(models[0]), answers["qwen3", "mixture", "eager"]["prompt_logprobs"], strict=True):
        ids = torch.tensor([prompt])
        here = mixed(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(there), here, rtol=0, atol=1e-4)
        assert here.isfinite().sum() >= NEW_TOKENS


def test_a_real_model_compiled_writes_the_same(answers):
    frozen = load_model("smollm2-135m")
    routed = apply_route(frozen, parse_route(REAL, frozen.layers))
    assert answers["real"]["tokens"] == [_write(routed, prompt) for prompt in _real_prompts(frozen.tokenizer)]


@pytest.mark.parametrize(("kind", "route"), EAGER)
def test_weights_are_held_once_and_only_visited_layers_have_slots(kind, route, answers):
    held = answers[kind, route, "eager"]
    assert held["slots"] == _route(route).length
    assert held["layers"] == len({step.layer for member in to_mixture(_route(route)).routes for step in member.steps})
    assert held["parameters"] == answers[kind, "standard", "eager"]["parameters"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a layer too high", "layers are numbered 0 to 5"),
        ("code for a layer", "not an integer"),
        ("another model's layers", "the route is for 7 layers, but the model has 6"),
        ("an add without a state", "can look back at most 0"),
        ("an adapter", "LoRA"),
        ("a weight of zero", "between 1e-06 and 1e+06 in size, not 0.0"),
        ("embeddings of a mixture", "a mixture has no embeddings"),
    ],
)
def test_a_bad_route_is_rejected_by_the_engine(name, reason, answers):
    assert reason in answers["refused", name]["refusal"]


@pytest.fixture(scope="module")
def server_cache(tmp_path_factory):
    """What servers keep for later ones: a description of every model class; they compile nothing."""
    return tmp_path_factory.mktemp("servers")


@pytest.mark.parametrize("route", SERVED)
def test_a_stock_client_gets_the_routed_text_several_requests_at_once(route, server_cache):
    command = [vllm_python(), "-m", "macro_routing.cli.main", "serve", route, "--model", "smollm2-135m"]
    command += ["--engine", "vllm"]
    with serving(command, ["--", "--enforce-eager", "--max-model-len", "512"], vllm_settings(server_cache)) as url:
        written = ask_all(url, "smollm2-135m", QUESTIONS)
    assert written == routed_texts(route)


def routed_texts(route):
    """What the routed transformers model says."""
    frozen = load_model("smollm2-135m")
    model = apply_route(frozen, parse_route_or_mixture(route, frozen.layers))
    texts = []
    for question in QUESTIONS:
        ids = torch.tensor([encode_messages(frozen.tokenizer, [{"role": "user", "content": question}])])
        ends = list(frozen.chat.end_token_ids)
        written = model.generate(ids, max_new_tokens=24, do_sample=False, eos_token_id=ends, pad_token_id=ends[0])
        texts.append(frozen.tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True))
    return texts
