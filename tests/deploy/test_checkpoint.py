"""Both checkpoints give, bit for bit, the logits of the routed model."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import macro_routing
from macro_routing.deploy.checkpoint_tensors import list_copyable_tensors
from macro_routing.deploy.export_common import copy_companion_files, open_exportable_model
from macro_routing.deploy.hf_export import write_hf_checkpoint
from macro_routing.deploy.routed_checkpoint import write_routed_checkpoint
from macro_routing.errors import ExportError, ModelError
from macro_routing.models import load_model
from macro_routing.models.routing import apply_route
from macro_routing.routes.mixture import Mixture
from tests.cli.runner import run, run_script
from tests.deploy.bases import ADDS, PLAIN, SHORT, files_in, rewrite_config, route_file, tiny_base
from tests.models.tiny import VARIANTS, tokens

_FEW = ("llama", "qwen3 with sliding layers", "mixtral")


@pytest.fixture
def base(tmp_path):
    return tiny_base(tmp_path / "base", "llama")


def _logits(model):
    with torch.no_grad():
        return model(tokens()).logits


def _same(folder, base, route):
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    return torch.equal(_logits(loaded), _logits(apply_route(load_model(base.name), route)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", sorted(VARIANTS))
def test_both_checkpoints_equal_the_routed_model(architecture, tmp_path):
    base = tiny_base(tmp_path / "base", architecture)
    macro_routing.register()
    write_hf_checkpoint(base, PLAIN, None, tmp_path / "hf")
    write_routed_checkpoint(base, ADDS, None, tmp_path / "routed")
    assert _same(tmp_path / "hf", base, PLAIN)
    assert _same(tmp_path / "routed", base, ADDS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", _FEW)
def test_a_mixture_is_exported_as_a_routed_checkpoint(architecture, tmp_path):
    base = tiny_base(tmp_path / "base", architecture)
    mixture = Mixture.from_weights([(PLAIN, 1.5), (ADDS, -0.5)])
    macro_routing.register()
    write_routed_checkpoint(base, mixture, None, tmp_path / "routed")
    assert _same(tmp_path / "routed", base, mixture)
    card = (tmp_path / "routed" / "README.md").read_text()
    assert "adds what several routes" in card
    assert "-0.5 × the log-probabilities of" in card


@pytest.mark.parametrize("target", ["hf", "gguf", "mergekit"])
def test_other_targets_reject_a_mixture(target, base, tmp_path):
    mixture = str(Mixture.from_weights([(PLAIN, 1.5), (ADDS, -0.5)]))
    options = ["--model", base.name, "--format", target, "--out", tmp_path / "out"]
    result = run("export", mixture, *options, status=2)
    stderr = " ".join(result.stderr.split())
    assert f"this is a mixture of 2 routes, but --format {target} takes a single route; use --format routed" in stderr
    assert f"or `macro serve`, which take mixtures, or give one of them, such as '{PLAIN}'" in stderr
    assert not (tmp_path / "out").exists()


def test_the_standard_checkpoint_needs_nothing_of_ours(tmp_path):
    cases = [(architecture, route) for architecture in _FEW for route in (PLAIN, SHORT)]
    for number, (architecture, route) in enumerate(cases):
        base = tiny_base(tmp_path / f"base{number}", architecture)
        write_hf_checkpoint(base, route, None, tmp_path / f"hf{number}", shard_bytes=30_000)
        assert len(list((tmp_path / f"hf{number}").glob("model-*.safetensors"))) > 1
        expected = {"logits": _logits(apply_route(load_model(base.name), route))}
        save_file(expected, tmp_path / f"expected{number}.safetensors")
    code = f"""
import sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
sys.modules["macro_routing"] = None  # an import would fail
torch.set_num_threads(1)
for number in range({len(cases)}):
    model = AutoModelForCausalLM.from_pretrained(f"hf{{number}}")
    AutoTokenizer.from_pretrained(f"hf{{number}}")
    logits = model(torch.tensor({tokens().tolist()})).logits
    print(torch.equal(logits, load_file(f"expected{{number}}.safetensors")["logits"]), model.config.num_hidden_layers)
"""
    (tmp_path / "compare.py").write_text(code)
    printed = run_script(tmp_path / "compare.py", cwd=tmp_path).stdout.splitlines()
    assert printed == [f"True {route.length}" for _, route in cases]


def test_what_lies_in_a_standard_checkpoint(base, tmp_path):
    write_hf_checkpoint(base, PLAIN, route_file(base, PLAIN), tmp_path / "hf")
    names = {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json", "README.md", "route.json"}
    assert names <= set(files_in(tmp_path / "hf"))
    card = (tmp_path / "hf" / "README.md").read_text()
    assert str(PLAIN) in card
    assert "better \\| by 5 points" in card  # what a route file says cannot become markup
    assert str(tmp_path) not in card + (tmp_path / "hf" / "config.json").read_text()


def test_layer_types_follow_the_route(tmp_path):
    base = tiny_base(tmp_path / "base", "qwen3 with sliding layers")
    write_hf_checkpoint(base, PLAIN, None, tmp_path / "hf")
    written = AutoConfig.from_pretrained(tmp_path / "hf").layer_types
    assert written == [base.config.layer_types[step.layer] for step in PLAIN.steps]


# --- the routed checkpoint ----------------------------------------------------------------------------------------


@pytest.fixture
def routed(base, tmp_path):
    macro_routing.register()
    write_routed_checkpoint(base, ADDS, route_file(base, ADDS), tmp_path / "routed")
    return tmp_path / "routed"


def test_weights_are_stored_once(base, routed):
    stored = [path.stat().st_size for path in routed.rglob("*.safetensors")]
    assert stored == [path.stat().st_size for path in base.folder.glob("*.safetensors")]


@pytest.mark.filterwarnings("ignore")
def test_soft_capped_attention_is_never_computed_without_its_cap(tmp_path):
    base = tiny_base(tmp_path / "base", "gemma2")
    macro_routing.register()
    write_routed_checkpoint(base, PLAIN, None, tmp_path / "routed")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "routed").config._attn_implementation == "eager"
    with pytest.raises(ModelError, match="leaves out the soft cap"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "routed", attn_implementation="sdpa")


def test_it_loads_as_any_model_does(base, routed):
    base.folder.rename(base.folder.with_name("gone"))  # nothing outside the checkpoint is needed
    model = AutoModelForCausalLM.from_pretrained(routed, dtype=torch.bfloat16, attn_implementation="eager")
    assert (model.dtype, model.config._attn_implementation) == (torch.bfloat16, "eager")
    assert model.macro_route == ADDS
    tokenizer = AutoTokenizer.from_pretrained(routed)
    assert tokenizer.eos_token == "<|im_end|>"
    model, info = AutoModelForCausalLM.from_pretrained(routed, output_loading_info=True)
    assert not info["missing_keys"]
    assert model.generate(tokens(rows=1), max_new_tokens=3, do_sample=False).shape[1] > tokens().shape[1]


def test_nothing_is_registered_by_importing():
    code = """
import macro_routing, macro_routing.deploy.routed_checkpoint, sys
assert "transformers" not in sys.modules
from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
assert "macro-routed" not in CONFIG_MAPPING
macro_routing.register(); macro_routing.register()
assert "macro-routed" in CONFIG_MAPPING
"""
    run(code=code)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"macro_base": {"folder": ".."}}, "directly inside"),
        ({"macro_base": {"folder": "/etc"}}, "directly inside"),
        ({"macro_base": {"folder": "base/../../base"}}, "directly inside"),
        ({"macro_base": {"hub": "../x/y", "revision": "0" * 40}}, "directly inside"),
        ({"macro_base": {"hub": "some/model", "revision": "main"}}, "directly inside"),
        ({"macro_base": "base"}, "directly inside"),
        ({"macro_base": {"folder": "other"}}, "incomplete"),
        ({"macro_weights_id": "0"}, "not the one"),
        ({"macro_route": None}, "damaged"),
    ],
)
def test_a_changed_checkpoint_is_rejected(routed, changes, message):
    rewrite_config(routed, **changes)
    with pytest.raises(ModelError, match=message):
        AutoModelForCausalLM.from_pretrained(routed)


def test_a_link_that_leaves_the_checkpoint_is_rejected(base, routed):
    shutil.rmtree(routed / "base")
    (routed / "base").symlink_to(base.folder)
    with pytest.raises(ModelError, match="directly inside"):
        AutoModelForCausalLM.from_pretrained(routed)


def test_other_weights_in_the_checkpoint_are_rejected(routed, tmp_path):
    tiny_base(tmp_path / "other", "llama", seed=5)
    shutil.copyfile(tmp_path / "other" / "model.safetensors", routed / "base" / "model.safetensors")
    with pytest.raises(ModelError, match="not the one"):
        AutoModelForCausalLM.from_pretrained(routed)


def test_an_incomplete_base_is_rejected_rather_than_filled_with_random_numbers(tmp_path):
    base = tiny_base(tmp_path / "base", "llama")
    kept = {name: value for name, value in load_file(base.folder / "model.safetensors").items() if ".5.mlp" not in name}
    save_file(kept, base.folder / "model.safetensors", metadata={"format": "pt"})
    macro_routing.register()
    write_routed_checkpoint(open_exportable_model(base.name), PLAIN, None, tmp_path / "routed")
    with pytest.raises(ModelError, match=r"lack model\.layers\.5\.mlp"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "routed")


@pytest.mark.parametrize("place", ["base/inner", "."])
def test_an_index_cannot_bring_other_weights_in(tmp_path, place):
    base = tiny_base(tmp_path / "base", "llama", shards="20KB")
    macro_routing.register()
    routed = tmp_path / "routed"
    write_routed_checkpoint(base, PLAIN, None, routed)
    assert _same(routed, base, PLAIN)
    tiny_base(tmp_path / "other", "llama", shards="20KB", seed=5)
    (routed / place).mkdir(exist_ok=True)
    for file in (tmp_path / "other").glob("*.safetensors"):
        shutil.copyfile(file, routed / place / file.name)
    index = routed / "base" / "model.safetensors.index.json"
    named = json.loads(index.read_text())["weight_map"]
    moved = {tensor: f"../{place}/{file}" for tensor, file in named.items()}
    index.write_text(json.dumps({"metadata": {}, "weight_map": moved}))
    with pytest.raises(ModelError, match=r"index\.json names '.*', which is not in that folder"):
        AutoModelForCausalLM.from_pretrained(routed)
    index.write_text("[]")
    with pytest.raises(ModelError, match=r"index\.json is damaged"):
        AutoModelForCausalLM.from_pretrained(routed)


def test_a_hub_model_is_referenced_by_its_commit(base, tmp_path, monkeypatch):
    commit = "0123456789abcdef" * 2 + "01234567"
    cache = tmp_path / "hub" / "models--some--model"
    (cache / "snapshots").mkdir(parents=True)
    base.folder.rename(cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub._snapshot_download.HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)
    named = open_exportable_model("some/model")
    macro_routing.register()
    write_routed_checkpoint(named, ADDS, None, tmp_path / "small")
    assert not list((tmp_path / "small").rglob("*.safetensors"))
    assert json.loads((tmp_path / "small" / "config.json").read_text())["macro_base"] == {
        "hub": "some/model",
        "revision": commit,
    }
    expected = _logits(apply_route(load_model("some/model"), ADDS))
    assert torch.equal(_logits(AutoModelForCausalLM.from_pretrained(tmp_path / "small")), expected)
    write_routed_checkpoint(named, ADDS, None, tmp_path / "whole", copy_weights=True)
    assert (tmp_path / "whole" / "base" / "model.safetensors").is_file()


# --- whole or not at all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [write_hf_checkpoint, write_routed_checkpoint])
def test_too_little_room_is_found_before_anything_is_written(base, tmp_path, monkeypatch, write):
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1000))
    before = files_in(tmp_path)
    with pytest.raises(ExportError, match=r"needs 1\d MB, but only 0 MB are free"):
        write(base, PLAIN, None, tmp_path / "out")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("write", [write_hf_checkpoint, write_routed_checkpoint])
def test_a_fault_half_way_leaves_nothing_behind(base, tmp_path, monkeypatch, write, fault):
    def fail(source, target):
        copy_companion_files(source, target)
        raise fault

    monkeypatch.setattr(f"{write.__module__}.copy_companion_files", fail)
    before = files_in(tmp_path)
    with pytest.raises(ExportError if isinstance(fault, OSError) else KeyboardInterrupt, match=r"the disk is full|^$"):
        write(base, PLAIN, None, tmp_path / "out")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("write", [write_hf_checkpoint, write_routed_checkpoint])
def test_folders_above_go_again_with_what_was_to_lie_in_them(base, tmp_path, monkeypatch, write):
    def fail(*_):
        raise KeyboardInterrupt

    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(f"{write.__module__}.copy_companion_files", fail)
    with pytest.raises(KeyboardInterrupt):
        write(base, PLAIN, None, tmp_path / "kept" / "new" / "newer" / "out")
    assert not list((tmp_path / "kept").iterdir())
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 1000))
    with pytest.raises(ExportError, match="are free"):
        write(base, PLAIN, None, tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()


def test_any_name_a_file_system_takes_is_written(base, tmp_path):
    name = "路" * 85  # as many bytes as a name may have
    write_routed_checkpoint(base, PLAIN, None, tmp_path / name)
    assert (tmp_path / name / "config.json").is_file()


def test_what_exists_is_not_written_over(base, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(ExportError, match="exists already"):
        write_routed_checkpoint(base, PLAIN, None, tmp_path / "out")
    with pytest.raises(ExportError, match="cannot be written"):
        write_routed_checkpoint(base, PLAIN, None, base.folder / "config.json" / "out")


def test_quantised_weights_are_rejected(base, tmp_path):
    base.config.quantization_config = {"quant_method": "gptq"}
    with pytest.raises(ExportError, match="quantized weights"):
        write_hf_checkpoint(base, PLAIN, None, tmp_path / "out")


def test_a_loaded_tensor_does_not_keep_its_file_mapped(base):
    # A route of thousands of steps would otherwise need more mappings than the system gives.
    loaded = [tensor.load() for tensor in list_copyable_tensors(base.folder)]
    assert loaded
    assert str(base.folder) not in Path("/proc/self/maps").read_text()


def test_a_damaged_weight_file_is_named(base, tmp_path):
    path = base.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ExportError, match="cannot be read"):
        write_hf_checkpoint(base, PLAIN, None, tmp_path / "out")
