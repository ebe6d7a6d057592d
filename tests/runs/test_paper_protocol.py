"""What the paper settles by model, method and final set: 4-bit weights, Dr.LLM's sizes, two readings of top-1."""

import importlib.util
import json
import shutil

import pytest
from transformers import AutoConfig

from macro_routing.errors import ModelError
from macro_routing.runs import folder as files
from macro_routing.runs import make_run_config, run_search
from macro_routing.runs.compare_methods import make_method_configs
from macro_routing.runs.prepare import load_configured_model, resolve_loading
from macro_routing.runs.presets import is_loaded_in_4bit_by_paper
from macro_routing.runs.progress import Listener
from macro_routing.runs.result import TOP_1, TOP_1_ANCHORED
from tests.models.tiny import tiny_model
from tests.runs.small import small_folder, small_frozen, small_task, small_tokenizer


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixtral")
    tiny_model("mixtral").save_pretrained(folder)
    small_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "layers", "expected"),
    [("mixtral", 32, True), ("qwen3", 40, True), ("qwen3", 36, False), ("llama", 32, False), ("llama", 40, False)],
)
def test_mixtral_and_qwen3_14b_are_known_by_their_configuration(kind, layers, expected):
    assert is_loaded_in_4bit_by_paper(AutoConfig.for_model(kind, num_hidden_layers=layers)) is expected


@pytest.mark.filterwarnings("ignore")
def test_preset_paper_loads_them_in_4_bits_unless_told_otherwise(mixtral, tmp_path):
    def resolve(model=mixtral, preset="paper", **loading):
        return resolve_loading(make_run_config("small", model, preset, loading=loading)).quantization

    assert resolve() == "4bit"
    assert resolve(quantization="8bit") == "8bit"
    assert resolve(quantization="none") is resolve(preset="quick") is resolve(str(small_folder(tmp_path))) is None
    told = []

    class Told(Listener):
        def on_message(self, text):
            told.append(text)

    frozen = load_configured_model(make_run_config("small", mixtral, "paper"), None, Told())
    assert frozen.model.is_quantized
    assert frozen.model.config.quantization_config.bnb_4bit_quant_type == "nf4"
    assert any("is loaded in 4bit, as in the paper" in text for text in told)


def test_a_checkpoint_that_is_quantized_already_is_loaded_as_it_is(mixtral, tmp_path):
    folder = tmp_path / "quantized"
    shutil.copytree(mixtral, folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 128}
    (folder / "config.json").write_text(json.dumps(config))
    assert resolve_loading(make_run_config("small", str(folder), "paper")).quantization is None


def test_without_bitsandbytes_it_says_how_to_deviate(mixtral, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "bitsandbytes" else find(name, *a)
    )
    with pytest.raises(ModelError, match="or deviate from the paper with --quantization none"):
        resolve_loading(make_run_config("small", mixtral, "paper"))


@pytest.mark.parametrize(("final_set", "is_anchored"), [("anchored", True), ("raw", False)])
def test_anchored_runs_report_both_readings_of_top_1(final_set, is_anchored, tmp_path):
    config = make_run_config(
        "small",
        "small",
        "paper",
        seed=1,
        search={"iterations": 3, "draws": 8, "elite": 2, "k": 3, "epsilon_local": 0.4, "final_set": final_set},
        data={"training": 40, "validation": 10, "test": 20},
        decoding={"mode": "likelihood"},
        space={"max_length": 8},
    )
    run_search(config, tmp_path / "run", frozen=small_frozen(), task=small_task(), store=tmp_path / "s.sqlite")
    variants = {row["name"]: row for row in json.loads((tmp_path / "run" / files.RESULT).read_text())["variants"]}
    assert TOP_1 in variants
    assert (TOP_1_ANCHORED in variants) is is_anchored
    if is_anchored:
        assert variants[TOP_1_ANCHORED]["route"] == variants["standard"]["route"] == "L0 RJ"


def test_routers_have_their_published_sizes_in_the_papers_table(tmp_path):
    """Dr.LLM is not given MACRO's budget there, and both stand in one table."""
    paper = make_run_config(
        "small", "small", "paper", seed=1, data={"training": 40, "validation": 10, "test": 20}, space={"max_length": 8}
    )
    known = {"frozen": small_frozen(), "task": small_task(), "store": tmp_path / "s.sqlite"}
    names = ["macro", "random", "drllm", "drllm-ext"]
    budgets = {config.method: config.budget for config in make_method_configs(paper, names, [1], known)}
    assert budgets["macro"] == budgets["random"] > 0
    assert budgets["drllm"] is budgets["drllm-ext"] is None
    given = make_method_configs(paper.with_changes(budget=500), names, [1], known)
    assert {config.budget for config in given} == {500}
    quick = make_method_configs(paper.with_changes(preset="quick", method="macro"), names, [1], known)
    assert len({config.budget for config in quick}) == 1
