"""What each form of an exported route costs, and how near its numbers are to the routed model's.

    python -m benchmarks.export [--model smollm2-135m] [--write docs/data/export.json]

llama.cpp is asked through xllamacpp, with a float32 cache and without flash attention.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import macro_routing
from benchmarks.record import write_record
from macro_routing.deploy.export_common import open_exportable_model
from macro_routing.deploy.gguf_export import write_gguf
from macro_routing.deploy.hf_export import write_hf_checkpoint
from macro_routing.deploy.routed_checkpoint import write_routed_checkpoint
from macro_routing.models import apply_route, load_model
from macro_routing.routes import parse_route

TEXT = "The capital of France is Paris, and the largest river in the world is"
TOP = 20
COLUMNS = {
    "target": "target",
    "disk_mb": "on disk, MB",
    "seconds": "to write, s",
    "weights_mb": "weights in memory, MB",
    "difference": "largest difference of a log-probability",
}


def measure_export(target: str, write: Callable[[Path], None], expected: Any, ids: list[int]) -> dict[str, Any]:
    """Write one form, load it with its own program, compare the next token's log-probabilities."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / ("out.gguf" if target == "gguf" else "out")
        began = time.perf_counter()
        write(out)
        seconds = time.perf_counter() - began
        disk = sum(path.stat().st_size for path in (out, *out.rglob("*")) if path.is_file())
        found, memory = _score_by_llama_cpp(out, ids) if target == "gguf" else _score_by_transformers(out, ids)
    return {
        "target": target,
        "disk_mb": disk / 1e6,
        "seconds": seconds,
        "weights_mb": memory,
        "difference": max(abs(expected[token].item() - value) for token, value in found.items()),
    }


def _log_probabilities(model: Any, ids: list[int]) -> Any:
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)


def _score_by_transformers(folder: Path, ids: list[int]) -> tuple[dict[int, float], float]:
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(folder, dtype=torch.float32)
    sizes = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in model.parameters()}
    top = _log_probabilities(model, ids).topk(TOP)
    return dict(zip(top.indices.tolist(), top.values.tolist(), strict=True)), sum(sizes.values()) / 1e6


def _score_by_llama_cpp(path: Path, ids: list[int]) -> tuple[dict[int, float], None]:
    import xllamacpp

    parameters: Any = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.verbosity = 256, 1, False, 0
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    asked = {"prompt": ids, "max_tokens": 1, "n_probs": TOP, "temperature": 0.0}
    answer = xllamacpp.Server(parameters).handle_completions(asked)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    top = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return {one["id"]: one["logprob"] for one in top}, None


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    macro_routing.register()
    frozen, base = load_model(arguments.model), open_exportable_model(arguments.model)
    route = parse_route(f"L0-L{frozen.layers // 2} L{frozen.layers // 2 - 2} RJ", frozen.layers)
    ids = frozen.tokenizer(TEXT).input_ids
    expected = _log_probabilities(apply_route(frozen, route), ids)
    writers: dict[str, Callable[[Path], None]] = {
        "routed": lambda out: write_routed_checkpoint(base, route, None, out),
        "hf": lambda out: write_hf_checkpoint(base, route, None, out),
        "gguf": lambda out: write_gguf(base, route, None, out),
    }
    results = [measure_export(target, write, expected, ids) for target, write in writers.items()]
    for result in results:
        print(result)
    if arguments.write is not None:
        config = {"model": arguments.model, "weights_id": base.weights_id, "route": str(route), "dtype": "float32"}
        write_record(
            arguments.write,
            command=f"python -m benchmarks.export --model {arguments.model} --write docs/data/{arguments.write.name}",
            config=config,
            seed=0,
            columns=COLUMNS,
            results=results,
        )


if __name__ == "__main__":
    main()
