"""Greedy decoding on a GPU: fused decoding beside ``model.generate`` and vLLM, all warm, in one run.

    python -m benchmarks.decoding_baselines --shape qwen2.5-1.5b [--vllm-site FOLDER] [--repeats 3]
        [--write docs/data/decoding_baselines_SHAPE.json]

The weights are random and have the shape of a published model; every text has the same number of tokens on all sides.
Each side runs each batch once before it is timed; times are medians. ``--vllm-site`` names a folder of packages with
vLLM for this interpreter; without it vLLM is left out. The larger batch has every prompt once per route: eight routes
by fused decoding, the standard pass of eight copies by the others, which cannot run other routes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fused import PROMPTS, SEED, SHAPES, draw_distinct_routes, make_random_model, make_random_prompts
from benchmarks.record import write_record
from macro_routing.engine.batching import Tokens, pad_left
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.generation import DecodingStage, GenerationRequest
from macro_routing.evaluation.bench import measure_repeatedly
from macro_routing.routes import Route

NEW_TOKENS, COPIES = 533, 8
VLLM_SETTINGS = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
FUSED, GENERATE, STATIC, VLLM = "fused", "generate", "generate, static cache, compiled", "vLLM"
COLUMNS = {
    "side": "decoded by",
    "rows": "texts",
    "routes": "routes",
    "seconds": "seconds, median",
    "tokens": "tokens per second",
    "ratio": "times as long as fused",
    "repeats": "repeats",
}
Line = dict[str, Any]


def generate_texts(model: Any, prompts: Sequence[Tokens], new_tokens: int, *, static: bool) -> Any:
    """All prompts in one batch of ``model.generate``; with a static cache transformers compiles the forward pass."""
    from transformers import GenerationConfig

    settings = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        cache_implementation="static" if static else None,
    )
    ids, mask = pad_left(prompts, model.device)
    return model.generate(ids, attention_mask=mask, generation_config=settings)


def decode_fused(decoder: FusedDecoder, routes: Sequence[Route], prompts: Sequence[Tokens], new_tokens: int) -> Any:
    """All prompts with every route."""
    return decoder.generate_for_routes(routes, prompts, GenerationRequest((DecodingStage(frozenset(), new_tokens),)))


def time_warm(name: str, rows: int, routes: int, run: Callable[[], Any], repeats: int) -> Line:
    """A line of the table: the batch runs once before it is timed."""
    run()
    samples = measure_repeatedly(run, repeats)
    print(f"{name}, {rows} texts: {', '.join(f'{seconds:.2f}' for seconds in samples)} s", flush=True)
    return make_line(name, rows, routes, samples)


def make_line(name: str, rows: int, routes: int, samples: Sequence[float]) -> Line:
    """A line of the table."""
    seconds = statistics.median(samples)
    return {
        "side": name,
        "rows": rows,
        "routes": routes,
        "seconds": seconds,
        "samples": list(samples),
        "tokens": rows * NEW_TOKENS / seconds,
        "repeats": len(samples),
    }


def time_vllm(shape: str, prompts: Sequence[Tokens], arguments: argparse.Namespace) -> tuple[list[Line], str]:
    """Time vLLM in a process of its own; its lines and its version."""
    from transformers import AutoConfig

    kind, sizes = SHAPES[shape]
    with tempfile.TemporaryDirectory() as folder:
        architecture = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}[kind]
        AutoConfig.for_model(kind, **sizes, architectures=[architecture]).save_pretrained(folder)
        request = Path(folder) / "request.json"
        request.write_text(
            json.dumps(
                {
                    "folder": folder,
                    "prompts": prompts,
                    "copies": [1, COPIES],
                    "new": NEW_TOKENS,
                    "max_num_seqs": arguments.max_num_seqs,
                    "repeats": arguments.repeats,
                }
            ),
            encoding="utf-8",
        )
        worker = Path(__file__).with_name("vllm_worker.py")
        done = subprocess.run(  # noqa: S603
            [sys.executable, str(worker), str(request)],
            env={**os.environ, **VLLM_SETTINGS, "PYTHONPATH": str(arguments.vllm_site)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    timed = json.loads(done.stdout.splitlines()[-1])
    lines = [make_line(VLLM, int(copies) * len(prompts), 1, samples) for copies, samples in timed["seconds"].items()]
    return lines, f"vLLM {timed['vllm']} (max_num_seqs {arguments.max_num_seqs}), torch {timed['torch']}"


def time_own_sides(model: Any, decoder: FusedDecoder, prompts: list[Tokens], repeats: int) -> Iterator[Line]:
    """``generate`` and fused decoding, line by line: one route, and as many texts as eight routes write."""
    layers = len(decoder.weights.layers)
    standard, several = [Route.standard(layers)], draw_distinct_routes(layers, COPIES)
    rows, many = len(prompts), COPIES * len(prompts)
    generate, decode = partial(generate_texts, model), partial(decode_fused, decoder)
    yield time_warm(FUSED, rows, 1, partial(decode, standard, prompts, NEW_TOKENS), repeats)
    yield time_warm(FUSED, many, 1, partial(decode, standard, prompts * COPIES, NEW_TOKENS), repeats)
    yield time_warm(FUSED, many, COPIES, partial(decode, several, prompts, NEW_TOKENS), repeats)
    decoder.release_memory()
    yield time_warm(GENERATE, rows, 1, partial(generate, prompts, NEW_TOKENS, static=False), repeats)
    yield time_warm(STATIC, rows, 1, partial(generate, prompts, NEW_TOKENS, static=True), repeats)
    yield time_warm(GENERATE, many, 1, partial(generate, prompts * COPIES, NEW_TOKENS, static=False), 1)


def add_ratios(lines: Sequence[Line]) -> list[Line]:
    """Each line with its time over that of fused decoding with one route and the same number of texts, if measured."""
    fused = {line["rows"]: line["seconds"] for line in lines if line["side"] == FUSED and line["routes"] == 1}
    return [{**line, "ratio": line["seconds"] / fused[line["rows"]]} for line in lines if line["rows"] in fused]


def write_table(arguments: argparse.Namespace, lines: Sequence[Line], vllm: str) -> None:
    """Record what is measured."""
    write_record(
        arguments.write,
        command=f"python -m benchmarks.decoding_baselines --shape {arguments.shape} --vllm-site FOLDER"
        f" --repeats {arguments.repeats}",
        config={"shape": arguments.shape, "prompts": PROMPTS, "new_tokens": NEW_TOKENS, "vllm": vllm},
        seed=SEED,
        columns=COLUMNS,
        results=add_ratios(lines),
        device="cuda",
    )


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, required=True)
    parser.add_argument("--vllm-site", type=Path)
    parser.add_argument("--max-num-seqs", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    prompts = make_random_prompts(PROMPTS)
    # vLLM takes most of the memory, so it runs before the model is made.
    vllm_lines, vllm = time_vllm(arguments.shape, prompts, arguments) if arguments.vllm_site else ([], "vLLM not run")
    model, lines = make_random_model(arguments.shape), list[Line]()
    for line in time_own_sides(model, FusedDecoder(model), prompts, arguments.repeats):
        lines.append(line)
        if arguments.write:  # after every line: an interrupted run keeps what it measured
            write_table(arguments, [*lines, *vllm_lines], vllm)
    for line in add_ratios([*lines, *vllm_lines]):
        print(f"{line['side']:<34} {line['rows']:5} texts {line['seconds']:8.2f} s {line['ratio']:6.2f}")


if __name__ == "__main__":
    main()
