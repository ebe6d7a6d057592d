"""lm-evaluation-harness in its own environment, offline, against the routed model here."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from macro_routing.models import apply_route, load_model
from macro_routing.routes import parse_route
from macro_routing.routes.route_file import RouteFile
from tests.cli.runner import ENVIRONMENT, run
from tests.models.tiny import LAYERS, tiny_model

ROOT = Path(__file__).parents[2]
ROUTE = parse_route("L0-L3 L1(+h-2) RJ", LAYERS)
ITEMS = [
    {"question": "The capital of France is", "choices": ["Paris", "London"], "answer": 0},
    {"question": "Water freezes at zero degrees", "choices": ["Celsius", "music"], "answer": 0},
    {"question": "The opposite of hot is", "choices": ["cat", "cold"], "answer": 1},
    {"question": "Two plus two is", "choices": ["four", "seven"], "answer": 0},
]
TASK = """
task: tiny_choices
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


def test_without_the_harness_the_extra_is_named():
    code = (
        "import sys; sys.modules['lm_eval'] = None; sys.argv = ['macro', 'lm-eval', 'run', '--help']\n"
        "from macro_routing.cli.main import main\nmain()"
    )
    assert ".[lm-eval]" in run(code=code, status=2).stderr


@pytest.fixture(scope="module")
def python():
    found = Path(os.environ.get("MACRO_LM_EVAL_ENV") or ROOT / ".venv-lm-eval") / "bin" / "python"
    if not found.is_file():
        pytest.skip("there is no environment with lm-eval: make lm-eval-env, or name one with MACRO_LM_EVAL_ENV")
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A tiny model, a route file for it, and a task, all on disk."""
    folder = tmp_path_factory.mktemp("harness")
    tokenizer = load_model("smollm2-135m").tokenizer
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    frozen = load_model(str(folder / "model"))
    file = RouteFile(ROUTE, "tiny", frozen.weights_id, frozen.numerics_id, "t")
    (folder / "route.json").write_text(file.to_json())
    (folder / "other.json").write_text(file.to_json().replace(frozen.weights_id, "other"))
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    (folder / "tasks").mkdir()
    (folder / "tasks" / "tiny.yaml").write_text(TASK.format(data=folder / "items.jsonl"))
    return folder


def harness(python, place, out, *more, route, status=0, dtype="float32"):
    done = subprocess.run(
        [
            *(python, "-m", "macro_routing.cli.main", "lm-eval", "run", "--model", "macro", "--device", "cpu"),
            *("--model_args", f"pretrained={place / 'model'},route={route},dtype={dtype}{''.join(more)}"),
            *("--tasks", "tiny_choices", "--include_path", place / "tasks", "--output_path", out, "--log_samples"),
        ],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(place / "hub")},
        check=False,
        timeout=300,
    )
    assert done.returncode == status, done.stderr[-3000:]
    return done


def written(out):
    results = json.loads(next(out.rglob("results_*.json")).read_text())
    lines = next(out.rglob("samples_*.jsonl")).read_text().splitlines()
    samples = sorted((json.loads(line) for line in lines), key=lambda sample: sample["doc_id"])
    return results, [[float(answer[0][0]) for answer in sample["resps"]] for sample in samples]


def expected(place, route):
    """Log-likelihoods of the choices, one plain pass each."""
    frozen = load_model(str(place / "model"))
    model = apply_route(frozen.model, route)

    def score(question, choice):
        start = len(frozen.tokenizer(question).input_ids)
        ids = torch.tensor([frozen.tokenizer(f"{question} {choice}").input_ids])
        chances = model(ids).logits[0].log_softmax(-1)
        return sum(chances[place - 1, ids[0, place]].item() for place in range(start, ids.shape[1]))

    return [[score(item["question"], choice) for choice in item["choices"]] for item in ITEMS]


@pytest.mark.engines
@pytest.mark.parametrize("given", ["file", "text", "standard"])
def test_the_harness_scores_the_routed_model_and_records_its_route(python, place, tmp_path, given):
    route = ROUTE if given != "standard" else parse_route("L0 RJ", LAYERS)
    harness(python, place, tmp_path, route=place / "route.json" if given == "file" else route)
    results, scores = written(tmp_path)
    torch.testing.assert_close(torch.tensor(scores), torch.tensor(expected(place, route)), rtol=0, atol=1e-4)
    assert results["config"]["macro_route"] == str(route)
    assert results["config"]["macro_route_length"] == route.length
    assert results["config"]["macro_layers"] == LAYERS
    assert results["results"]["tiny_choices"]["sample_len"] == len(ITEMS)


@pytest.mark.engines
@pytest.mark.parametrize(
    ("route", "more", "message"),
    [
        ("other.json", "", "belongs to tiny"),
        ("missing.json", "", "cannot read the route file"),
        ("L0 L99 RJ", "", "applies layer 99"),
        ("route.json", ",delta=x", "delta changes the weights"),
    ],
)
def test_mistakes_end_before_anything_is_scored(python, place, tmp_path, route, more, message):
    route = place / route if route.endswith(".json") else route
    failed = harness(python, place, tmp_path, more, route=route, status=2)
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not list(tmp_path.rglob("*.json"))
