"""All logits of exported routes in llama.cpp, against the routed model in transformers.

    python -m benchmarks.llama_logits --llama-python PYTHON [--model smollm2-135m] [--write docs/data/llama_logits.json]

PYTHON is an interpreter with llama-cpp-python, which is built from source and so lives in an environment of its own:
`python -m venv llama-env && llama-env/bin/pip install llama-cpp-python`. Cache in float32, no flash attention.

The standard pass shows how far the two programs are apart without any routing; a route should be about as far, no more.
The last rows hold a file against the wrong route on purpose: a comparison that could not tell would be worth nothing.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import ROOT, write_record
from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.deploy.gguf_export import write_gguf
from macro_routing.models import FrozenModel, apply_route, load_model
from macro_routing.models.frozen import ModelMetadata
from macro_routing.routes import parse_route

TEXTS = (
    "The capital of France is Paris, and the largest river in the world is the Amazon, which flows through Brazil.",
    "def mean(values):\n    total = 0\n    for one in values:\n        total += one\n    return total / len(values)",
    "Anna has 12 apples. She gives 5 of them to Ben and buys 7 more. How many apples are left? 12 - 5 + 7 = 14.",
    "Il fait beau aujourd'hui – 東京は晴れ. Once upon a time there was a little fox who lived at the edge of a forest.",
)
ROUTES = {
    "standard": "L0 RJ",
    "repeats": "L0-L15 L13 RJ",
    "skips": "L0-L10 L14 RJ",
    "repeats and skips": "L0-L12 L10-L17 L20-L22 L22 RJ",
}
CASES = [
    *((name, name) for name in ROUTES),
    ("repeats", "standard"),
    ("repeats", "the neighbour repeated"),
    ("repeats and skips", "skips"),
]
"""What is in the file, and the route in transformers it is compared with."""
COMPARED = {**ROUTES, "the neighbour repeated": "L0-L16 L14 RJ"}
COLUMNS = {
    "file": "in the file",
    "against": "compared with",
    "positions": "positions",
    "largest": "largest difference of a logit",
    "mean": "mean difference",
    "same_best": "same best token (%)",
    "divergence": "mean divergence, nats",
    "largest_divergence": "largest",
}


def compute_transformers_logits(frozen: FrozenModel, route: str, prompts: list[list[int]]) -> Any:
    """All positions of all prompts, one below the other."""
    model = apply_route(frozen, parse_route(route, frozen.layers))
    with torch.no_grad():
        return torch.cat([model(torch.tensor([prompt])).logits[0].double() for prompt in prompts])


def compute_llama_logits(base: ModelMetadata, route: str, prompts: list[list[int]], python: Path) -> tuple[Any, str]:
    """The same from llama.cpp, reading an exported file; and the version of llama-cpp-python."""
    with tempfile.TemporaryDirectory() as scratch:
        gguf, asked, said = (Path(scratch) / name for name in ("model.gguf", "prompts.json", "logits.npz"))
        write_gguf(base, parse_route(route, base.layers), None, gguf)
        asked.write_text(json.dumps(prompts), encoding="utf-8")
        command = [python, ROOT / "benchmarks" / "llama_worker.py", gguf, asked, said]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 our own file
        with np.load(said, allow_pickle=False) as found:
            rows = [torch.from_numpy(found[str(number)]).double() for number in range(len(prompts))]
    return torch.cat(rows), done.stdout.strip()


def compare_logits(expected: Any, found: Any) -> dict[str, float]:
    """How far two sets of logits are apart; the divergence is from the routed model's distribution to llama.cpp's."""
    differences = (expected - found).abs()
    known, said = torch.log_softmax(expected, -1), torch.log_softmax(found, -1)
    divergence = (known.exp() * (known - said)).sum(-1)
    return {
        "positions": len(expected),
        "largest": differences.max().item(),
        "mean": differences.mean().item(),
        "same_best": 100 * (expected.argmax(-1) == found.argmax(-1)).double().mean().item(),
        "divergence": divergence.mean().item(),
        "largest_divergence": divergence.max().item(),
    }


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-python", type=Path, required=True, help="an interpreter with llama-cpp-python")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    frozen, base = load_model(arguments.model), open_exportable_model(arguments.model)
    prompts = [frozen.tokenizer(text).input_ids for text in TEXTS]
    expected = {name: compute_transformers_logits(frozen, route, prompts) for name, route in COMPARED.items()}
    found = {name: compute_llama_logits(base, route, prompts, arguments.llama_python) for name, route in ROUTES.items()}
    results = [
        {"file": file, "against": against, **compare_logits(expected[against], found[file][0])}
        for file, against in CASES
    ]
    for result in results:
        print(result)
    if arguments.write is not None:
        config = {
            "model": arguments.model,
            "weights_id": base.weights_id,
            "routes": COMPARED,
            "dtype": "float32",
            "llama-cpp-python": found["standard"][1],
        }
        write_record(
            arguments.write,
            command=f"python -m benchmarks.llama_logits --llama-python PYTHON --model {arguments.model}"
            f" --write docs/data/{arguments.write.name}",
            config=config,
            seed=0,
            columns=COLUMNS,
            results=results,
        )


if __name__ == "__main__":
    main()
