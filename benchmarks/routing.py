"""What routing costs: making a routed model, its weight memory, and the identity route's time per token.

    python -m benchmarks.routing [--model smollm2-135m] [--write docs/data/routing_cost.json]

Exits with 1 when a target is missed. Times per token are taken in interleaved pairs, untouched and routed in turn.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import write_record
from macro_routing.models import apply_route, load_model
from macro_routing.routes import Route, parse_route

SEED = 0
PAIRS = 40
TOKENS = 16
COLUMNS = {"figure": "figure", "value": "measured", "target": "target", "unit": "unit", "n": "n", "detail": "how"}


def measure_apply_time() -> dict[str, Any]:
    """Milliseconds for 48 steps on 36 layers, adds included."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    config = Qwen3Config(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=36,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    model = AutoModelForCausalLM.from_config(config).eval()  # type: ignore[no-untyped-call]
    route = parse_route("L0-L17 L6(+h-3) L7-L17 RJ", 36)
    samples = [1000 * _measure_seconds(lambda: apply_route(model, route)) for _ in range(30)]
    return {
        "figure": "apply_route, 48 steps on 36 layers (Qwen3)",
        "value": statistics.median(samples),
        "target": 20,
        "unit": "ms",
        "n": len(samples),
        "detail": "median; the width of the layers plays no part",
        "samples": samples,
    }


def measure_extra_memory(model: Any) -> dict[str, Any]:
    """Bytes of weight storage of a routed model that the model itself does not hold."""
    layers = model.config.num_hidden_layers
    routed = apply_route(model, parse_route(f"L0-L{layers // 2} L2(+h-2) RJ", layers))
    own = {parameter.untyped_storage().data_ptr() for parameter in (*model.parameters(), *model.buffers())}
    tensors = (*routed.parameters(), *routed.buffers())
    extra = sum(tensor.nbytes for tensor in tensors if tensor.untyped_storage().data_ptr() not in own)
    return {
        "figure": "additional weight memory of a routed model",
        "value": extra,
        "target": 0,
        "unit": "bytes",
        "n": len(tensors),
        "detail": "storage identity of every tensor",
    }


def measure_identity_overhead(model: Any, vocabulary: int) -> dict[str, Any]:
    """Time per token of the identity route over the untouched model's, in percent."""
    routed = apply_route(model, Route.standard(model.config.num_hidden_layers))
    prompt = torch.randint(vocabulary, (1, 32), generator=torch.Generator().manual_seed(SEED)).to(model.device)
    for candidate in (model, routed):
        _time_decoding(candidate, prompt)
    ratios = []
    for pair in range(PAIRS):
        order = (model, routed) if pair % 2 == 0 else (routed, model)
        times = {id(candidate): _time_decoding(candidate, prompt) for candidate in order}
        ratios.append(times[id(routed)] / times[id(model)])
    percent = 100 * (statistics.median(ratios) - 1)
    return {
        "figure": "identity route, time per token against the untouched model",
        "value": percent,
        "target": 2,
        "unit": "% more",
        "n": PAIRS,
        "detail": f"median of interleaved pairs, {TOKENS} tokens each",
        "ratios": ratios,
    }


def _time_decoding(model: Any, prompt: torch.Tensor) -> float:
    """Seconds for ``TOKENS`` greedy steps after the prompt."""
    with torch.no_grad():
        output = model(prompt, use_cache=True)
        cache, token = output.past_key_values, output.logits[:, -1:].argmax(-1)

        def steps() -> None:
            nonlocal token
            for _ in range(TOKENS):
                token = model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
            token.cpu()  # waits for the device

        return _measure_seconds(steps)


def _measure_seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--name", help="the model's name in the record, where --model is a path")
    parser.add_argument("--write", type=Path, help="write the measurements to this JSON file")
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    model = frozen.model
    name = arguments.name or frozen.name
    results = [
        measure_apply_time(),
        measure_extra_memory(model),
        measure_identity_overhead(model, model.config.vocab_size),
    ]
    for result in results:
        verdict = "met" if result["value"] <= result["target"] else "MISSED"
        print(f"{result['figure']:<62} {result['value']:8.3g} {result['unit']:<7} target {result['target']}: {verdict}")
    if arguments.write:
        write_record(
            arguments.write,
            command=f"python -m benchmarks.routing --model {name} --write docs/data/{arguments.write.name}",
            config={"model": name, "weights_id": frozen.weights_id, "dtype": str(model.dtype), "tokens": TOKENS},
            seed=SEED,
            columns=COLUMNS,
            results=results,
            device=str(model.device),
        )
    sys.exit(any(result["value"] > result["target"] for result in results))


if __name__ == "__main__":
    main()
