"""A route as vLLM's overrides: what is written is read back, and nothing but plain numbers is read."""

import json
from types import SimpleNamespace

import pytest

from macro_routing.deploy.vllm.hf_overrides import ARCHITECTURES, make_route_overrides, read_route_from_hf_config
from macro_routing.errors import MacroError
from macro_routing.routes import parse_route
from macro_routing.routes.mixture import parse_mixture, to_mixture
from tests.models.tiny import LAYERS, config_of

MIXTURE = parse_mixture("1.7 [L0 RJ] - 0.5 [L0-L3 L2(+0.5h-2) L3(-h-1) RJ] - 0.2 [L0-L3 L2 L2 L4]", LAYERS)
SOUND = {"macro_model_layers": LAYERS, "macro_layers": [0, 1, 2, 2, 5], "macro_adds": [[3, 2, 0.5]]}


def _config(kind="llama", **entries):
    config = config_of(kind)
    for name, value in entries.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("text", ["L0 RJ", "L0-L3 L2 L2 L4", "L0-L3 L2(+0.5h-2) L3(-h-1) RJ"])
def test_what_is_written_is_read_back(kind, text):
    route = parse_route(text, LAYERS)
    written = make_route_overrides(route, config_of(kind))
    assert written["architectures"] == [ARCHITECTURES[kind]]
    assert read_route_from_hf_config(_config(kind, **written)) == route


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_mixture_that_is_written_is_read_back(kind):
    written = json.loads(json.dumps(make_route_overrides(MIXTURE, config_of(kind))))
    assert written["architectures"] == [ARCHITECTURES[kind]]
    assert read_route_from_hf_config(_config(kind, **written)) == MIXTURE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"macro_weights": 1.0}, "macro_weights must be a list"),
        ({"macro_weights": [1.7, -0.5]}, "are for 3, 3 and 2 routes"),
        ({"macro_adds": []}, "are for 3, 0 and 3 routes"),
        ({"macro_layers": [], "macro_adds": [], "macro_weights": []}, "at least one route"),
        ({"macro_layers": [0, 1, 2]}, "macro_layers must be a list, not 0"),
        ({"macro_weights": [1.7, -0.5, 0]}, "between 1e-06 and 1e\\+06 in size, not 0"),
        ({"macro_weights": [1.7, -0.5, float("nan")]}, "in size, not nan"),
        ({"macro_weights": [1.7, -0.5, "1"]}, "must be a number, not '1'"),
        ({"macro_weights": [1.7, -0.5, True]}, "must be a number, not True"),
        ({"macro_layers": [[0, 1]] * 3, "macro_adds": [[]] * 3}, "each route once"),
        (
            {"macro_layers": [[0]] * 9, "macro_adds": [[]] * 9, "macro_weights": [1] * 9},
            "at most 8 routes, this one has 9",
        ),
        ({"macro_model_layers": 7}, "for 7 layers, but the model has 6"),
    ],
)
def test_any_other_mixture_is_rejected(changes, reason):
    written = make_route_overrides(MIXTURE, config_of("llama"))
    with pytest.raises(MacroError, match=reason):
        read_route_from_hf_config(_config(**{**written, **changes}))


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"macro_layers": None}, "macro_layers must be a list"),
        ({"macro_layers": "0,1"}, "macro_layers must be a list"),
        ({"macro_layers": [], "macro_adds": []}, "at least one step"),
        ({"macro_layers": [0, 1.0]}, "not an integer"),
        ({"macro_layers": [0, True]}, "not an integer"),
        ({"macro_layers": ["exec('x')"]}, "not an integer"),
        ({"macro_layers": [0, 6, 1, 2]}, "numbered 0 to 5"),
        ({"macro_layers": [0, 1, 2, -1]}, "numbered 0 to 5"),
        ({"macro_model_layers": 7}, "for 7 layers, but the model has 6"),
        ({"macro_model_layers": None}, "not an integer"),
        ({"macro_adds": None}, "macro_adds must be a list"),
        ({"macro_adds": [[3, 2]]}, "every entry is"),
        ({"macro_adds": [[5, 2, 1.0]]}, "the steps 0 to 4"),
        ({"macro_adds": [[3, 9, 1.0]]}, "at most 2"),
        ({"macro_adds": [[3, 2, "1"]]}, "not a number"),
        ({"macro_adds": [[3, 2, float("nan")]]}, "finite"),
        ({"macro_adds": [[3, 2, 1.0], [3, 1, 1.0]]}, "twice"),
    ],
)
def test_anything_else_is_rejected(entries, reason):
    with pytest.raises(MacroError, match=reason):
        read_route_from_hf_config(_config(**{**SOUND, **entries}))


def test_sound_entries_are_read():
    assert str(read_route_from_hf_config(_config(**SOUND))) == "L0-L2 L2(+0.5h-2) L5 RJ"


def test_an_architecture_without_a_routed_class_is_named():
    with pytest.raises(MacroError, match=r"gemma2 models cannot be routed in vLLM, only llama"):
        make_route_overrides(parse_route("L0 RJ", LAYERS), config_of("gemma2"))


def test_what_a_routed_engine_cannot_do_is_named():
    from macro_routing.deploy.vllm.steps import check_engine_config

    def engine(lora=None, speculative=None, runner="generate", **parallel):
        return SimpleNamespace(
            lora_config=lora,
            speculative_config=speculative,
            parallel_config=SimpleNamespace(**{"pipeline_parallel_size": 1, **parallel}),
            model_config=SimpleNamespace(runner_type=runner),
        )

    single = to_mixture(parse_route("L0 RJ", LAYERS))
    for_mixtures_only = (
        (engine(runner="pooling"), "a mixture has no embeddings"),
        (engine(enable_batch_sharded_sampling=True), "leave out enable_batch_sharded_sampling"),
    )
    for sound in (engine(), *(bad for bad, _ in for_mixtures_only)):
        check_engine_config(sound, single)
    check_engine_config(engine(), MIXTURE)
    for_all = (
        (engine(lora=1), "LoRA"),
        (engine(speculative=1), "speculative"),
        (engine(pipeline_parallel_size=2), "stages"),
    )
    for bad, reason in (*for_all, *for_mixtures_only):
        with pytest.raises(MacroError, match=reason):
            check_engine_config(bad, MIXTURE)
    for bad, reason in for_all:
        with pytest.raises(MacroError, match=reason):
            check_engine_config(bad, single)
