"""mergekit's own reading of an exported configuration."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from macro_routing.deploy.mergekit_export import write_mergekit_config
from macro_routing.errors import ExportError
from macro_routing.models import load_model
from macro_routing.models.routing import apply_route
from tests.deploy.bases import ADDS, PLAIN, SHORT, tiny_base
from tests.models.tiny import TOKENS, tokens


def test_the_configuration_names_the_layers_and_keeps_the_precision(tmp_path):
    base = tiny_base(tmp_path / "base", "llama")
    write_mergekit_config(base, PLAIN, tmp_path / "out.yml")
    written = yaml.safe_load((tmp_path / "out.yml").read_text())
    assert (written["merge_method"], written["dtype"]) == ("passthrough", "float32")
    sources = [part["sources"] for part in written["slices"]]
    assert [source[0]["layer_range"] for source in sources] == [[0, 4], [2, 5], [4, 6]]
    assert {source[0]["model"] for source in sources} == {str(base.folder)}


def test_what_mergekit_would_write_wrongly_is_rejected(tmp_path):
    with pytest.raises(ExportError, match="layer_types"):
        write_mergekit_config(tiny_base(tmp_path / "a", "qwen3"), PLAIN, tmp_path / "out.yml")
    with pytest.raises(ExportError, match=r"step 5 \(L2\(\+h-2\)\)"):
        write_mergekit_config(tiny_base(tmp_path / "b", "llama"), ADDS, tmp_path / "out.yml")
    assert not (tmp_path / "out.yml").exists()


@pytest.mark.engines
@pytest.mark.parametrize("route", [PLAIN, SHORT], ids=str)
def test_mergekit_writes_the_routed_model(route, tmp_path):
    base = tiny_base(tmp_path / "base", "llama", vocab_size=TOKENS)
    write_mergekit_config(base, route, tmp_path / "out.yml")
    command = [Path(sys.executable).with_name("mergekit-yaml"), "out.yml", "merged", "--clone-tensors"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    expected = apply_route(load_model(base.name), route)
    with torch.no_grad():
        assert torch.equal(merged(tokens()).logits, expected(tokens()).logits)
