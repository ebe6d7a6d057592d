"""lm-evaluation-harness in its own environment, offline, against the routed model here."""

import json
import os
from pathlib import Path

import pytest
import torch

from macro_routing.engine.likelihood import ChoiceItem, score_choices_for_routes
from macro_routing.evaluation.model_answers import combine_choice_scores
from macro_routing.models import apply_route, load_model
from macro_routing.routes import parse_route
from macro_routing.routes.mixture import parse_mixture
from macro_routing.routes.route_file import RouteFile
from tests.cli.runner import ENVIRONMENT, run, run_elsewhere
from tests.models.tiny import LAYERS, tiny_folder

ROOT = Path(__file__).parents[2]
LIBRARIES = ("torch", "transformers.models.llama.modeling_llama", "lm_eval.models.huggingface", "few_harness_tasks")
ROUTE = parse_route("L0-L3 L1(+h-2) RJ", LAYERS)
MIXTURE = parse_mixture("1.7 [L0 RJ] - 0.5 [L0-L3 L1(+h-2) RJ] - 0.2 [L0 L2 RJ]", LAYERS)
ITEMS = [
    {"question": "The capital of France is", "choices": ["Paris", "London"], "answer": 0},
    {"question": "Water freezes at zero degrees", "choices": ["Celsius", "music"], "answer": 0},
    {"question": "The opposite of hot is", "choices": ["cat", "cold"], "answer": 1},
    {"question": "Two plus two is", "choices": ["four", "seven"], "answer": 0},
]
TASK = """
task: {name}
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
TEXT_TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["@@@"]
  max_gen_toks: 8
metric_list:
  - metric: exact_match
"""
PERPLEXITY_TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{question}}}}"
metric_list:
  - metric: word_perplexity
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
    tiny_folder(folder / "model", "llama")
    frozen = load_model(str(folder / "model"))
    file = RouteFile(ROUTE, "tiny", frozen.weights_id, frozen.numerics_id, "t")
    (folder / "route.json").write_text(file.to_json())
    (folder / "other.json").write_text(file.to_json().replace(frozen.weights_id, "other"))
    (folder / "tasks").mkdir()
    greedy = [find_item_with_greedy_choice(frozen, apply_route(frozen, MIXTURE))]
    kinds = [("choices", TASK, ITEMS), ("greedy", TASK, greedy), ("text", TEXT_TASK, ITEMS)]
    for name, task, items in [*kinds, ("perplexity", PERPLEXITY_TASK, ITEMS)]:
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(item) + "\n" for item in items))
        (folder / "tasks" / f"{name}.yaml").write_text(task.format(name=f"tiny_{name}", data=data))
    return folder


def find_item_with_greedy_choice(frozen, mixed):
    """An item whose first choice is the token that the mixed model writes."""
    for question in (f"{item['question']} {choice}" for item in ITEMS for choice in ("not", "one", "in", "very")):
        prompt = frozen.tokenizer(question, return_tensors="pt").input_ids
        text = frozen.tokenizer.decode(write(mixed, prompt, 1))
        if text.startswith(" ") and frozen.tokenizer(question + text).input_ids[:-1] == prompt[0].tolist():
            return {"question": question, "choices": [text[1:], "music"], "answer": 0}
    raise AssertionError("no first token of these texts is a word")


def write(mixed, prompt, new_tokens):
    ids = mixed.generate(prompt, max_new_tokens=new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0)
    return ids[0, prompt.shape[1] :].tolist()


def harness(python, place, out, *more, route, status=0, dtype="float32", task="tiny_choices", batch="1", fresh=False):
    """A ``fresh`` one indexes all task files of the harness, too."""
    arguments = [
        *("lm-eval", "run", "--model", "macro", "--device", "cpu", "--batch_size", batch),
        *("--model_args", f"pretrained={place / 'model'},route={route},dtype={dtype}{''.join(more)}"),
        *("--tasks", task, "--include_path", place / "tasks", "--output_path", out, "--log_samples"),
    ]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(place / "hub")}
    # Arrow's allocator would start a thread when it is imported, and what is forked must have one thread.
    environment = {**ENVIRONMENT, **offline, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    return run_elsewhere(python, LIBRARIES, environment, *arguments, status=status, fresh=fresh)


def written(out, task="tiny_choices"):
    """The results, and the harness's answers to every item of a task."""
    results = json.loads(next(out.rglob("results_*.json")).read_text())
    lines = next(out.rglob(f"samples_{task}_*.jsonl")).read_text().splitlines()
    samples = sorted((json.loads(line) for line in lines), key=lambda sample: sample["doc_id"])
    return results, [[answer[0] for answer in sample["resps"]] for sample in samples]


def scores(answers):
    return torch.tensor([[float(score) for score, _ in choices] for choices in answers])


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
    place_or_text = place / "route.json" if given == "file" else route
    harness(python, place, tmp_path, route=place_or_text, fresh=given == "file")
    results, answers = written(tmp_path)
    torch.testing.assert_close(scores(answers), torch.tensor(expected(place, route)), rtol=0, atol=1e-4)
    assert results["config"]["macro_route"] == str(route)
    assert results["config"]["macro_route_length"] == route.length
    assert results["config"]["macro_layers"] == LAYERS
    assert results["results"]["tiny_choices"]["sample_len"] == len(ITEMS)


@pytest.fixture(scope="module", params=["3", "auto"])
def mixed_run(request, python, place, tmp_path_factory):
    """A run of the harness with a mixture, in batches of this size."""
    out = tmp_path_factory.mktemp("mixture")
    # To write, the harness tries 64 texts of the model's length, and without a GPU nothing stops it where memory ends.
    tasks = "tiny_choices,tiny_greedy" if request.param == "auto" else "tiny_choices,tiny_greedy,tiny_text"
    harness(python, place, out, route=MIXTURE, task=tasks, batch=request.param)
    return out


@pytest.mark.engines
def test_choices_of_a_mixture_score_as_in_macro_evaluate(place, mixed_run):
    frozen = load_model(str(place / "model"))

    def make_item(question, choices):
        prompt = frozen.tokenizer(question).input_ids
        texts = [frozen.tokenizer(f"{question} {choice}").input_ids for choice in choices]
        return ChoiceItem(prompt, tuple(ids[len(prompt) :] for ids in texts))

    items = [make_item(item["question"], item["choices"]) for item in ITEMS]
    by_route = score_choices_for_routes(frozen.model, MIXTURE.routes, items)
    here = combine_choice_scores(MIXTURE, {(route, True): values for route, values in by_route.items()})
    results, answers = written(mixed_run)
    torch.testing.assert_close(scores(answers), torch.tensor(here), rtol=0, atol=1e-4)
    assert results["config"]["macro_route"] == str(MIXTURE)
    assert results["config"]["macro_route_length"] == MIXTURE.length


@pytest.mark.engines
def test_only_what_a_mixture_writes_is_its_greedy_choice(mixed_run):
    _, answers = written(mixed_run, "tiny_greedy")
    assert [str(is_greedy) for _, is_greedy in answers[0]] == ["True", "False"]


@pytest.mark.engines
@pytest.mark.parametrize("mixed_run", ["3"], indirect=True)
def test_a_mixture_writes_what_the_mixed_model_writes(place, mixed_run):
    frozen = load_model(str(place / "model"))
    mixed = apply_route(frozen, MIXTURE)
    prompts = [frozen.tokenizer(item["question"], return_tensors="pt").input_ids for item in ITEMS]
    _, answers = written(mixed_run, "tiny_text")
    # The harness reads what was written without special tokens.
    expected_texts = [frozen.tokenizer.decode(write(mixed, prompt, 8), skip_special_tokens=True) for prompt in prompts]
    assert answers == [[text] for text in expected_texts]


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


@pytest.mark.engines
def test_a_mixture_has_no_perplexity(python, place, tmp_path):
    failed = harness(python, place, tmp_path, route=MIXTURE, status=2, task="tiny_perplexity")
    assert "a mixture has no perplexity" in failed.stderr
    assert "Traceback" not in failed.stderr
