import copy
import time

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache

from macro_routing.errors import ModelError, RouteError
from macro_routing.models import apply_route, collect_hidden_states, freeze_model
from macro_routing.models.doctor import break_cache_slots, run_checks
from macro_routing.models.find_decoder import get_decoder
from macro_routing.models.reference import build_unrolled_model, compute_route_reference_logits
from macro_routing.routes import Route, parse_route
from macro_routing.routes.mixture import Mixture
from tests.models.tiny import LAYERS, VARIANTS, tiny_model, tokens

PLAIN = parse_route("L0-L3 L1 L2 L2 L4 RJ", LAYERS)
ADDING = parse_route("L0-L3 L1(+h-2) L2 L2(-0.25h-1) L4(+0.5h-5) RJ", LAYERS)
GENERAL = parse_route("L3 L1 L5 L0(+h-1) L2", LAYERS)  # starts anywhere, jumps far, ends early


@pytest.fixture(scope="module", params=VARIANTS)
def model(request):
    return tiny_model(request.param)


def logits(model, ids, **inputs):
    with torch.no_grad():
        return model(ids, use_cache=False, **inputs).logits


def test_identity_is_bit_identical(model):
    ids = tokens()
    assert torch.equal(logits(apply_route(model, Route.standard(LAYERS)), ids), logits(model, ids))


def test_plain_route_is_the_deeper_model_bit_for_bit(model):
    ids = tokens(length=20)
    routed, deeper = apply_route(model, PLAIN), build_unrolled_model(model, PLAIN)
    assert torch.equal(logits(routed, ids), logits(deeper, ids))
    assert not torch.equal(logits(routed, ids), logits(model, ids))


@pytest.mark.parametrize("route", [PLAIN, ADDING, GENERAL], ids=["plain", "adding", "general"])
def test_routes_equal_a_pass_by_hand(model, route):
    ids = tokens(length=20)
    torch.testing.assert_close(
        logits(apply_route(model, route), ids), compute_route_reference_logits(model, route, ids)
    )


@pytest.mark.parametrize("route", [PLAIN, ADDING], ids=["plain", "adding"])
def test_generation_with_every_cache_is_recomputation(model, route):
    ids = tokens(rows=2, length=14)
    routed = apply_route(model, route)
    expected = ids
    for _ in range(8):
        expected = torch.cat([expected, logits(routed, expected)[:, -1:].argmax(-1)], dim=1)
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "attention_mask": torch.ones_like(ids)}
    assert torch.equal(routed.generate(ids, **options), expected)
    static = StaticCache(config=routed.config, max_cache_len=32)
    assert torch.equal(routed.generate(ids, past_key_values=static, **options), expected)


def test_every_step_has_its_own_slot(model):
    routed = apply_route(model, PLAIN)
    cache = DynamicCache(config=routed.config)
    with torch.no_grad():
        routed(tokens(length=6), past_key_values=cache, use_cache=True)
    assert len(cache.layers) == PLAIN.length
    assert {layer.keys.shape[-2] for layer in cache.layers} == {6}


def test_doctor_finds_every_architecture_sound(model):
    findings = list(run_checks(freeze_model(model)))
    assert [finding for finding in findings if not finding.passed] == []
    assert {finding.name for finding in findings if finding.skipped} <= {"CUDA graph equals eager decoding"}


def test_left_padding_in_generate(model):
    """Each row of a left-padded batch goes on as it does alone."""
    routed = apply_route(model, ADDING)
    long, short = tokens(rows=1, length=10), tokens(rows=1, length=6, seed=5)
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    alone = [routed.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, -6:] for ids in (long, short)]
    padding = torch.zeros(1, 4, dtype=torch.long)
    ids = torch.cat([long, torch.cat([padding, short], dim=1)])
    mask = torch.cat([torch.ones_like(long), torch.cat([padding, torch.ones_like(short)], dim=1)])
    together = routed.generate(ids, attention_mask=mask, **options)[:, -6:]
    assert torch.equal(together, torch.stack(alone))


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "qwen3_moe"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_attention_kernels(name, attention):
    model = tiny_model(name, attention=attention)
    ids = tokens(length=20)
    torch.testing.assert_close(
        logits(apply_route(model, ADDING), ids), compute_route_reference_logits(model, ADDING, ids)
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama", "L0 L2 L1 L1 RJ"),
        ("llama", "L0 L2 L1 L1(+h-2) L2(-0.25h-1)"),
        ("gemma3_text", "L0 L2 L1 L1(+h-2) L2(-0.25h-1) RJ"),
    ],
)
def test_compile_gives_one_graph(name, text):
    """With repeats, a skip and a jump back; each layer takes seconds to compile, so there are three."""
    kinds = {"layer_types": VARIANTS[name]["layer_types"][:3]} if "layer_types" in VARIANTS[name] else {}
    routed = apply_route(tiny_model(name, num_hidden_layers=3, **kinds), parse_route(text, 3))
    ids = tokens()
    expected = logits(routed, ids)
    torch.compiler.reset()
    compiled = torch.compile(routed, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(logits(compiled, ids), expected)


def test_weights_are_shared_and_the_base_is_untouched(model):
    before = {name: (value.data_ptr(), value.clone()) for name, value in model.state_dict().items()}
    config = model.config.to_dict()
    slots = [part.layer_idx for part in model.modules() if "layer_idx" in part.__dict__]
    routed = apply_route(model, ADDING)
    routed.generate(tokens(), max_new_tokens=2, do_sample=False)
    pointers = {pointer for pointer, _ in before.values()}
    assert {value.data_ptr() for value in routed.parameters()} <= pointers
    assert [part.layer_idx for part in model.modules() if "layer_idx" in part.__dict__] == slots
    assert model.config.to_dict() == config
    assert not any(part._forward_pre_hooks for part in model.modules())
    for name, value in model.state_dict().items():
        assert value.data_ptr() == before[name][0]
        assert torch.equal(value, before[name][1])


def test_routed_models_do_not_disturb_each_other():
    model = tiny_model("llama")
    ids = tokens()
    adding, plain = apply_route(model, ADDING), apply_route(model, PLAIN)
    expected = logits(adding, ids), logits(plain, ids)
    adding.generate(ids, max_new_tokens=3, do_sample=False)
    assert torch.equal(logits(adding, ids), expected[0])
    assert torch.equal(logits(plain, ids), expected[1])


def test_a_hook_on_a_routed_model_stays_there():
    model = tiny_model("llama")
    routed = apply_route(model, PLAIN)
    get_decoder(routed).layers[0].register_forward_hook(lambda *_: pytest.fail("called on the base model"))
    logits(model, tokens())


def test_layers_spread_over_disk_and_memory(tmp_path):
    model = tiny_model("llama")
    model.save_pretrained(tmp_path / "model")
    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    places |= {f"model.layers.{layer}": "disk" if layer in (1, 4) else "cpu" for layer in range(LAYERS)}
    spread = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=tmp_path / "offload", dtype=torch.float32
    )
    ids = tokens()
    for route in (PLAIN, ADDING):
        routed = apply_route(spread, route)
        torch.testing.assert_close(logits(routed, ids), logits(apply_route(model, route), ids))
        options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
        expected = apply_route(model, route).generate(ids, **options)
        assert torch.equal(routed.generate(ids, **options), expected)


def test_applying_a_route_takes_milliseconds():
    """The benchmark measures the figure; this bound only catches a change of kind, on a loaded machine too."""
    model = tiny_model("qwen3", num_hidden_layers=36)
    route = parse_route("L0-L17 L6(+h-3) L7-L17 RJ", 36)
    assert route.length == 48
    apply_route(model, route)
    times = []
    for _ in range(5):
        start = time.process_time()
        apply_route(model, route)
        times.append(time.process_time() - start)
    assert min(times) < 0.1


def test_routed_models_cannot_be_routed_again():
    with pytest.raises(ModelError, match="routed already"):
        apply_route(apply_route(tiny_model("llama"), PLAIN), PLAIN)


def test_a_route_for_another_depth_is_rejected():
    with pytest.raises(RouteError, match="for 28 layers, but the model has 6"):
        apply_route(tiny_model("llama"), Route.standard(28))


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("hooked_first", [True, False])
def test_router_logits_come_once_per_step_and_the_base_has_none_of_it(name, hooked_first):
    model = tiny_model(name)
    if hooked_first:
        model(tokens(), output_router_logits=True)
    routed = apply_route(model, PLAIN)
    routed(tokens(), output_hidden_states=True)
    assert len(routed(tokens(), output_router_logits=True).router_logits) == PLAIN.length
    assert len(model(tokens(), output_router_logits=True).router_logits) == LAYERS


def test_a_routed_model_is_not_saved_as_if_it_were_another(tmp_path):
    for route in (PLAIN, ADDING, parse_route("L0-L2 L3(+h-1) RJ", LAYERS)):
        with pytest.raises(ModelError, match="cannot be saved as a checkpoint"):
            apply_route(tiny_model("llama"), route).save_pretrained(tmp_path)


def test_a_loaded_model_is_routed_as_its_transformers_model():
    frozen = freeze_model(tiny_model("llama"))
    ids = tokens()
    assert torch.equal(apply_route(frozen, PLAIN)(ids).logits, apply_route(frozen.model, PLAIN)(ids).logits)


def test_likely_mistakes_are_explained():
    frozen = freeze_model(tiny_model("llama"))
    with pytest.raises(RouteError, match="parse_route"):
        apply_route(frozen.model, "L0-L3 L1 RJ")
    with pytest.raises(ModelError, match="is not a transformers model"):
        apply_route(object(), PLAIN)
    with pytest.raises(ModelError, match=r"pass its \.model"):
        collect_hidden_states(frozen, tokens())
    with pytest.raises(ModelError, match="tensor of token ids"):
        collect_hidden_states(frozen.model, [[1, 2, 3]])
    assert "6 layers" in repr(frozen)


def test_a_replaced_forward_is_rejected():
    model = copy.copy(tiny_model("llama"))
    layer = get_decoder(model).layers[2]
    layer.forward = lambda *_args, **_kwargs: None
    with pytest.raises(ModelError, match=r"LlamaDecoderLayer.forward was replaced"):
        apply_route(model, PLAIN)


def test_a_model_with_an_adapter_is_rejected():
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(tiny_model("llama"), LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))
    with_its_own_method = tiny_model("llama")
    with_its_own_method.add_adapter(LoraConfig(target_modules=["q_proj"]))
    unnoted = get_peft_model(tiny_model("llama"), LoraConfig(target_modules=["gate_proj"])).base_model.model
    del unnoted.peft_config
    for model in (adapted, adapted.base_model.model, with_its_own_method, unnoted):
        with pytest.raises(ModelError, match="LoRA"):
            apply_route(model, PLAIN)


@pytest.mark.parametrize("module", ["q_proj", "gate_proj"])
@pytest.mark.filterwarnings("ignore:Already found a `peft_config`")
def test_a_routed_model_takes_no_adapter_and_its_original_stays_clean(module):
    from peft import LoraConfig, get_peft_model

    model = tiny_model("llama")
    before = model(tokens()).logits
    routed = apply_route(model, PLAIN)
    wanted = LoraConfig(task_type="CAUSAL_LM", target_modules=[module], init_lora_weights=False)
    for attach in (
        lambda: get_peft_model(routed, wanted),
        lambda: routed.add_adapter(wanted),
        lambda: routed.load_adapter("anything"),
    ):
        with pytest.raises(ModelError, match="cannot take a LoRA"):
            attach()
    assert torch.equal(model(tokens()).logits, before)
    assert apply_route(model, PLAIN) is not None


def test_a_merged_adapter_is_a_model_like_any_other():
    from peft import LoraConfig, get_peft_model

    wanted = LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], init_lora_weights=False)
    merged = get_peft_model(tiny_model("llama"), wanted).merge_and_unload()
    assert not torch.equal(
        apply_route(merged, PLAIN)(tokens()).logits, apply_route(tiny_model("llama"), PLAIN)(tokens()).logits
    )


class TestNegativeControl:
    """With one slot per layer instead of one per step, the checks must fail."""

    def test_a_shared_slot_is_wrong_and_noticed(self):
        from macro_routing.models.doctor import ModelWithCheckInputs, _compare_cached_with_recomputed

        frozen = freeze_model(tiny_model("llama"))
        subject = ModelWithCheckInputs(frozen, PLAIN, ADDING, Mixture.from_route(PLAIN))
        sound = apply_route(frozen.model, PLAIN)
        assert _compare_cached_with_recomputed(subject, "sound", sound).passed
        break_cache_slots(sound, PLAIN)
        assert not _compare_cached_with_recomputed(subject, "shared", sound).passed

    def test_doctor_fails_when_routing_shares_slots(self, monkeypatch):
        from macro_routing.models import doctor

        def shared(model, route, **options):
            routed = apply_route(model, route, **options)
            break_cache_slots(routed, route)
            return routed

        monkeypatch.setattr(doctor, "apply_route", shared)
        failed = {finding.name for finding in run_checks(freeze_model(tiny_model("llama"))) if not finding.passed}
        assert "cached decoding equals recomputing" in failed
        assert "static cache equals recomputing" in failed

    def test_doctor_fails_when_the_control_notices_nothing(self, monkeypatch):
        from macro_routing.models import doctor

        monkeypatch.setattr(doctor, "break_cache_slots", lambda *_: None)
        failed = [finding for finding in run_checks(freeze_model(tiny_model("llama"))) if not finding.passed]
        assert [finding.name for finding in failed] == ["negative control: a shared cache slot is noticed"]
        assert "NOT noticed" in failed[0].detail

    def test_doctor_notices_wrong_adds(self, monkeypatch):
        from macro_routing.models import routing

        monkeypatch.setattr(routing, "add_hidden_state", lambda hidden, earlier, _: hidden + 2 * earlier)
        failed = {finding.name for finding in run_checks(freeze_model(tiny_model("llama"))) if not finding.passed}
        assert failed == {"adds equal the reference implementation", "a mixture equals its routes one by one"}

    def test_doctor_notices_that_routing_changed_the_model_itself(self, monkeypatch):
        from macro_routing.models import doctor

        def meddling(model, route, **options):
            routed = apply_route(model, route, **options)
            for part in model.modules():
                if "layer_idx" in part.__dict__:
                    part.layer_idx = 0
            return routed

        monkeypatch.setattr(doctor, "apply_route", meddling)
        failed = {finding.name for finding in run_checks(freeze_model(tiny_model("llama"))) if not finding.passed}
        assert "the model itself answers as before" in failed

    def test_doctor_notices_masks_that_are_lost_with_a_cache(self, monkeypatch):
        from macro_routing.models import doctor

        def forgetful(model, route, **options):
            routed = apply_route(model, route, **options)
            plain = routed.forward

            def forward(*args, attention_mask=None, past_key_values=None, **kwargs):
                kept = attention_mask if past_key_values is None else None
                return plain(*args, attention_mask=kept, past_key_values=past_key_values, **kwargs)

            routed.forward = forward
            return routed

        monkeypatch.setattr(doctor, "apply_route", forgetful)
        failed = {finding.name for finding in run_checks(freeze_model(tiny_model("llama"))) if not finding.passed}
        assert "generate on a padded batch equals each row alone" in failed

    def test_a_route_without_adds_skips_that_check(self):
        findings = {
            finding.name: finding
            for finding in run_checks(freeze_model(tiny_model("llama")), parse_route("L0 L1", LAYERS))
        }
        assert findings["adds equal the reference implementation"].skipped

    def test_doctor_notices_changed_weights(self, monkeypatch):
        from macro_routing.models import doctor

        def meddle(subject, name):
            subject.unrouted_model.lm_head.weight.data.mul_(1.001)
            return doctor.CheckResult(name, passed=True)

        monkeypatch.setattr(doctor, "CHECKS", [("meddling", meddle)])
        (*_, last) = run_checks(freeze_model(tiny_model("llama")))
        assert not last.passed

    def test_doctor_notices_copied_weights(self, monkeypatch):
        from macro_routing.models import doctor

        def copying(model, route, **options):
            return copy.deepcopy(apply_route(model, route, **options))

        monkeypatch.setattr(doctor, "apply_route", copying)
        findings = {finding.name: finding for finding in run_checks(freeze_model(tiny_model("llama")))}
        assert not findings["extra weight memory is zero"].passed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_doctor_on_a_gpu(model):
    findings = list(run_checks(freeze_model(copy.deepcopy(model).to("cuda", torch.bfloat16))))
    assert [finding for finding in findings if not finding.passed] == []
