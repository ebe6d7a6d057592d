"""Standard checkpoints under the last version 4 of transformers: the same tokens, logits and text."""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.deploy.hf_export import write_hf_checkpoint
from macro_routing.models import apply_route, load_model
from macro_routing.routes import parse_route
from tests.cli.runner import ENVIRONMENT

pytestmark = pytest.mark.engines
PYTHON = Path(__file__).parents[2] / ".venv-transformers4" / "bin" / "python"
ROUTE = "L0-L17 L15-L20 L22 RJ"
PROMPT = "The capital of France is"
CODE = """
import json, sys, torch, transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
ids = tokenizer(sys.argv[2], return_tensors="pt")
with torch.no_grad():
    logits = model(**ids).logits[0, -1]
text = model.generate(**ids, max_new_tokens=16, do_sample=False)[0]
print(json.dumps([transformers.__version__, ids["input_ids"][0].tolist(), logits.tolist(), text.tolist()]))
"""


def test_a_standard_checkpoint_is_the_same_model(tmp_path):
    if not PYTHON.is_file():
        pytest.skip("there is no environment with transformers 4: make .venv-transformers4/.ready")
    base = open_exportable_model("smollm2-135m")
    route = parse_route(ROUTE, base.layers)
    write_hf_checkpoint(base, route, None, tmp_path / "exported")
    command = [str(PYTHON), "-c", CODE, str(tmp_path / "exported"), PROMPT]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    version, ids, logits, text = json.loads(done.stdout.splitlines()[-1])
    assert version.startswith("4.57.")
    frozen = load_model("smollm2-135m")
    expected_ids = frozen.tokenizer(PROMPT, return_tensors="pt")
    routed = apply_route(frozen, route)
    with torch.no_grad():
        expected = routed(**expected_ids).logits[0, -1]
    assert ids == expected_ids["input_ids"][0].tolist()
    assert torch.allclose(torch.tensor(logits), expected, atol=1e-3)
    assert text == routed.generate(**expected_ids, max_new_tokens=16, do_sample=False)[0].tolist()
