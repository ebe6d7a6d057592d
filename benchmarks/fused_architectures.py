"""Fused decoding of every supported architecture on a GPU: against ``model.generate``, and against its roofline.

    python -m benchmarks.fused_architectures [--shapes NAME …] [--write docs/data/fused_architectures.json]

The weights are random and have the shape of a published model; a shape with nf4 in its name is quantized to 4 bits by
bitsandbytes. Both sides decode the standard pass of the same prompts to the same number of tokens, once before they are
timed; times are medians of three runs, or one run of more than 10 seconds. ``generate`` runs experts one after the
other: its default copies their weights once per text. A record grows: shapes that are not named keep their lines.
Exits with 1 when a shape fails.
"""

import argparse
import gc
import json
import statistics
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.decoding_baselines import decode_fused, generate_texts
from benchmarks.fused import PROMPTS, SEED, SHAPES, make_random_model, make_random_prompts
from benchmarks.fused_steps import DeviceLimits, measure_arithmetic, measure_copy_bandwidth, measure_step
from benchmarks.record import current_commit, write_record
from macro_routing.engine.batching import Tokens
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.evaluation.bench import measure_repeatedly
from macro_routing.routes import Route

NEW_TOKENS, REPEATS = 128, 3
LONG = 10.0
"""Seconds of a run that is not repeated."""
NF4 = "-nf4"
ALL_SHAPES = (*SHAPES, f"qwen3-14b{NF4}")
VOCABULARY = 30_000
"""Of the prompts, which all shapes can read."""
COLUMNS = {
    "shape": "shape",
    "architecture": "`model_type`",
    "weights": "GB of weights",
    "generate": "`generate`, s",
    "batch": "texts at once by `generate`",
    "fused": "fused, s",
    "speedup": "times as fast",
    "step": "decoding step, ms",
    "limit": "over its roofline",
    "tokens": "tokens per second",
}


def measure_architecture(
    model: Any, decoder: FusedDecoder, prompts: Sequence[Tokens], limits: DeviceLimits
) -> dict[str, Any]:
    """One line of the table."""
    standard = Route.standard(len(decoder.weights.layers))
    fused = _time_warm(partial(decode_fused, decoder, [standard], prompts, NEW_TOKENS))
    decoder.release_memory()  # ``generate`` has the whole device, as it has without the decoder
    if hasattr(model.config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")
    batch = find_batch_that_fits(model, prompts)  # the run before ``generate`` is timed
    batches = [prompts[first : first + batch] for first in range(0, len(prompts), batch)]
    generate = time_until_long(lambda: [generate_texts(model, texts, NEW_TOKENS, static=False) for texts in batches])
    step = measure_step(decoder, model, [standard], prompts, NEW_TOKENS, limits)
    return {
        "architecture": model.config.model_type,
        "weights": sum(parameter.nbytes for parameter in model.parameters()) / 1e9,
        "generate": statistics.median(generate),
        "batch": batch,
        "fused": statistics.median(fused),
        "speedup": statistics.median(generate) / statistics.median(fused),
        "step": 1e3 * step.seconds,
        "limit": step.times_limit,
        "tokens": step.rows / step.seconds,
        "samples": {"generate": generate, "fused": fused, "step": step.samples},
        "products": step.products,
        "cache": step.cache,
        "bandwidth": limits.bandwidth,
        "arithmetic": limits.arithmetic,
    }


def find_batch_that_fits(model: Any, prompts: Sequence[Tokens]) -> int:
    """How many texts ``generate`` decodes at once: all of them, or half as often as memory asks for.

    Where memory ends with a single text, so does this.
    """
    import torch

    batch = len(prompts)
    while True:
        try:
            generate_texts(model, prompts[:batch], NEW_TOKENS, static=False)
        except torch.OutOfMemoryError:
            if batch == 1:
                raise
        else:
            return batch
        torch.cuda.empty_cache()  # not above, where the error still holds what was allocated
        batch = -(-batch // 2)


def _time_warm(run: Any) -> list[float]:
    run()
    return time_until_long(run)


def time_until_long(run: Any) -> list[float]:
    """Seconds of some runs, or of one where it is long."""
    (first,) = measure_repeatedly(run, 1)
    return [first, *measure_repeatedly(run, 0 if first > LONG else REPEATS - 1)]


def measure_shape(shape: str, prompts: Sequence[Tokens], limits: DeviceLimits) -> dict[str, Any]:
    """The line of a shape; its model is freed afterwards."""
    import torch

    try:
        model = make_random_model(shape.removesuffix(NF4))
        if shape.endswith(NF4):
            quantize_to_4_bits(model)
        return {"shape": shape, **measure_architecture(model, FusedDecoder(model), prompts, limits)}
    finally:
        model = None
        gc.collect()
        torch.cuda.empty_cache()


def quantize_to_4_bits(model: Any) -> None:
    """Replace the linear maps of all layers as transformers does when it loads a model in 4 bits."""
    import bitsandbytes
    import torch

    bnb: Any = bitsandbytes.nn
    model.config.quantization_config = {"quant_method": "bitsandbytes"}
    for parent in [module for layer in model.model.layers for module in layer.modules()]:
        for name, linear in list(parent.named_children()):
            if type(linear) is torch.nn.Linear:
                sizes = (linear.in_features, linear.out_features)
                quantized = bnb.Linear4bit(*sizes, compute_dtype=model.dtype, quant_type="nf4", device="meta")
                quantized.weight = bnb.Params4bit(
                    linear.weight.data, requires_grad=False, quant_type="nf4", module=quantized
                )
                quantized.bias = linear.bias
                setattr(parent, name, quantized.to(model.device))


def write_table(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    """Record the shapes that are measured, beside those that the record has already."""
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"results": [], "commit": None}
    by_shape = {line["shape"]: line for line in (*before["results"], *lines)}
    commits = [before["commit"], current_commit()]
    write_record(
        path,
        command=f"python -m benchmarks.fused_architectures --write docs/data/{path.name}",
        config={"weights": "random", "prompts": PROMPTS, "new_tokens": NEW_TOKENS, "repeats": REPEATS},
        seed=SEED,
        columns=COLUMNS,
        results=[by_shape[shape] for shape in ALL_SHAPES if shape in by_shape],
        device="cuda",
        commits=", ".join(dict.fromkeys(", ".join(filter(None, commits)).split(", "))),
    )


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=ALL_SHAPES, default=list(ALL_SHAPES))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    limits = DeviceLimits(measure_copy_bandwidth("cuda"), measure_arithmetic("cuda"))
    prompts, lines = make_random_prompts(PROMPTS, VOCABULARY), []
    for shape in arguments.shapes:
        try:
            line = measure_shape(shape, prompts, limits)
        except Exception:  # noqa: BLE001 the other shapes are worth measuring all the same
            traceback.print_exc()
            continue
        lines.append(line)
        print(
            f"{shape:<14} generate {line['generate']:6.2f} s, fused {line['fused']:5.2f} s:"
            f" {line['speedup']:5.1f} times; step {line['step']:6.2f} ms, {line['limit']:.2f} times its roofline,"
            f" {line['tokens']:,.0f} tokens/s",
            flush=True,
        )
        if arguments.write:  # after every shape: an interrupted run keeps what it measured
            write_table(arguments.write, lines)
    sys.exit(len(lines) < len(arguments.shapes))


if __name__ == "__main__":
    main()
