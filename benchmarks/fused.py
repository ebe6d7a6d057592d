"""Fused decoding on a GPU: against ``model.generate``, against the time its bytes need, and by route length.

    python -m benchmarks.fused MODEL [--data-dir FOLDER] [--write docs/data/fused_MODEL.json]
    python -m benchmarks.fused --shape qwen3-1.7b [--steps] [--write docs/data/fused_qwen3_shape.json]

With a shape the weights are random and so are the prompts; every row writes to its budgets in any case. With --steps
only decoding steps are measured, against their roofline and by route length. Exits with 1 when a target is missed.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fused_steps import MeasuredFigure, measure_fused_decoding, measure_steps, profile_kernels
from benchmarks.record import write_record
from macro_routing.engine.batching import Tokens
from macro_routing.engine.decoders import FUSED, get_fused_decoder
from macro_routing.engine.fused.decoder import FusedDecoder
from macro_routing.engine.generation import DecodingStage
from macro_routing.evaluation.bench import measure_seconds
from macro_routing.routes import Route, RouteSpace
from macro_routing.search import MarkovPolicy

SEED = 0
PROMPTS, ROUTES, COMPARED = 145, 30, 2
REASONING, ANSWER = 400, 128
_QWEN3_EXPERTS = {"moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": True}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    name: (
        kind,
        {
            "hidden_size": width,
            "intermediate_size": intermediate,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": 128,
            "vocab_size": vocabulary,
            "tie_word_embeddings": tied,
            "max_position_embeddings": 32768,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
            **others,
        },
    )
    for name, kind, width, intermediate, layers, heads, kv_heads, vocabulary, tied, others in (
        ("qwen2.5-1.5b", "qwen2", 1536, 8960, 28, 12, 2, 151936, True, {}),
        ("qwen3-1.7b", "qwen3", 2048, 6144, 28, 16, 8, 151936, True, {}),
        ("qwen3-8b", "qwen3", 4096, 12288, 36, 32, 8, 151936, False, {}),
        ("qwen3-14b", "qwen3", 5120, 17408, 40, 40, 8, 151936, False, {}),
        ("llama-8b", "llama", 4096, 14336, 32, 32, 8, 128256, False, {}),
        ("mistral-7b", "mistral", 4096, 14336, 32, 32, 8, 32000, False, {"sliding_window": 4096}),
        ("gemma2-2b", "gemma2", 2304, 9216, 26, 8, 4, 256000, True, {"head_dim": 256, "sliding_window": 4096}),
        ("gemma3-1b", "gemma3_text", 1152, 6912, 26, 4, 1, 262144, True, {"head_dim": 256, "sliding_window": 512}),
        ("olmo2-1b", "olmo2", 2048, 8192, 16, 16, 16, 100352, False, {}),
        ("olmo3-7b", "olmo3", 4096, 11008, 32, 32, 32, 100278, False, {"sliding_window": 4096}),
        ("phi3-mini", "phi3", 3072, 8192, 32, 32, 32, 32064, False, {"head_dim": 96, "sliding_window": 2047}),
        ("qwen3-30b-a3b", "qwen3_moe", 2048, 6144, 48, 32, 4, 151936, False, _QWEN3_EXPERTS),
        ("mixtral-8x7b", "mixtral", 4096, 14336, 32, 32, 8, 32000, False, {}),
    )
}
"""Sizes of published models, by name."""
COLUMNS = {"figure": "figure", "value": "measured", "target": "target", "detail": "how"}
PROFILE_COLUMNS = {
    "kernel": "kernel",
    "launches": "launches per step",
    "each": "µs each",
    "step": "µs per step",
}


def make_random_model(shape: str) -> Any:
    """A model of a known shape with random weights, on the GPU in bfloat16."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    from macro_routing.models.support import choose_attention

    kind, sizes = SHAPES[shape]
    torch.manual_seed(SEED)
    config = AutoConfig.for_model(kind, **sizes)
    # All weights are drawn alike: the models' own initialization takes minutes for a large one.
    with torch.device("cuda"), no_init_weights():
        model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=torch.bfloat16, attn_implementation=choose_attention(config)
        )
    for name, parameter in model.requires_grad_(False).named_parameters():
        if name.endswith(".bias"):
            parameter.zero_()
        elif parameter.dim() > 1:
            parameter.normal_(0, config.initializer_range)
    return model.eval()


def make_random_prompts(count: int, vocabulary: int = 50_000) -> list[Tokens]:
    """Prompts as long as grade-school problems in a chat template."""
    rng = np.random.default_rng(SEED)
    return [tuple(rng.integers(10, vocabulary, rng.integers(70, 200)).tolist()) for _ in range(count)]


def load_real_prompts(frozen: Any, data_dir: Path | None) -> tuple[list[Tokens], tuple[DecodingStage, ...]]:
    """Prompts of GSM8K with reasoning, and their stages."""
    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.model_answers import encode_prompts_and_generation_stages
    from macro_routing.tasks import load_task, make_splits

    task = load_task("gsm8k", data_dir=data_dir, seed=SEED)
    examples = make_splits(task, seed=SEED).train[:PROMPTS]
    return encode_prompts_and_generation_stages(
        frozen, task, examples, DecodingSettings("reasoning", REASONING, ANSWER)
    )


def measure_round_with_savings(frozen: Any, data_dir: Path | None, generate_seconds: float) -> MeasuredFigure:
    """A round of draws as a search scores it: repeated draws once, hopeless ones stopped, ends and loops heeded."""
    import tempfile

    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.evaluator import Evaluator
    from macro_routing.evaluation.score_store import ScoreStore
    from macro_routing.tasks import load_task, make_splits

    task = load_task("gsm8k", data_dir=data_dir, seed=SEED)
    examples = make_splits(task, seed=SEED).train[:PROMPTS]
    policy, rng = MarkovPolicy.make_prior(RouteSpace(frozen.layers)), np.random.default_rng(SEED)
    draws = [policy.sample_program(rng).to_route(frozen.layers) for _ in range(ROUTES)]
    with tempfile.TemporaryDirectory() as folder:
        decoding = DecodingSettings("reasoning", REASONING, ANSWER, stop_loops=True)
        evaluator = Evaluator(frozen, task, decoding, ScoreStore(Path(folder) / "scores.sqlite"))
        seconds, raced = measure_seconds(lambda: evaluator.race_draws(draws, examples, 5))
    return MeasuredFigure(
        "times as fast as generate to the budgets, a round with all savings on",
        ROUTES * generate_seconds / seconds,
        None,
        met=True,
        detail=f"{seconds:.1f} s for {raced.requested} evaluations; {raced.duplicates} repeated,"
        f" {raced.stopped} stopped; {100 * raced.truncated_share:.0f} % truncated",
        raw={
            "seconds": seconds,
            "generate_seconds_per_route": generate_seconds,
            **dataclasses.asdict(dataclasses.replace(raced, looked_at=())),
        },
    )


def draw_distinct_routes(layers: int, count: int) -> list[Route]:
    """Different routes from the prior."""
    policy, rng = MarkovPolicy.make_prior(RouteSpace(layers)), np.random.default_rng(SEED)
    found: dict[Route, None] = {}
    while len(found) < count:
        found[policy.sample_program(rng).to_route(layers)] = None
    return list(found)


def tabulate_kernels(kernels: Sequence[tuple[str, float, float]]) -> list[dict[str, Any]]:
    """Kernels as lines of a table, those that take longest per step first."""
    lines = [
        {"kernel": f"`{kernel[:48]}`", "launches": launches, "each": each, "step": launches * each}
        for kernel, launches, each in kernels
    ]
    return sorted(lines, key=lambda line: -line["step"])


def load_subject(
    arguments: argparse.Namespace,
) -> tuple[Any, Any, Sequence[Tokens], tuple[DecodingStage, ...]]:
    """The frozen model, or None for random weights, the model, and what it decodes."""
    if arguments.shape:
        model, prompts = make_random_model(arguments.shape), make_random_prompts(PROMPTS)
        reasoning = DecodingStage(frozenset(), REASONING, (11, 12, 13, 14, 15))
        return None, model, prompts, (reasoning, DecodingStage(frozenset(), ANSWER))
    from macro_routing.models import load_model

    frozen = load_model(arguments.model)
    return frozen, frozen.model, *load_real_prompts(frozen, arguments.data_dir)


def print_figures(figures: Sequence[MeasuredFigure], kernels: Sequence[tuple[str, float, float]]) -> None:
    """Every figure with its target, and the kernels that take longest."""
    for figure in figures:
        verdict = "" if figure.target is None else f"target {figure.target}: {'met' if figure.met else 'MISSED'}"
        print(f"{figure.figure:<70} {figure.value:7.3f} {verdict}\n    {figure.detail}")
    for kernel, launches, microseconds in kernels[:14]:
        print(f"    {kernel[:72]:<72} {launches:6.1f} × {microseconds:7.2f} µs")


def write_tables(
    arguments: argparse.Namespace, figures: Sequence[MeasuredFigure], kernels: Sequence[tuple[str, float, float]]
) -> None:
    """Record the figures, and the kernels beside them."""
    name = f"--shape {arguments.shape}" if arguments.shape else "MODEL"
    steps = " --steps" * arguments.steps
    command = f"python -m benchmarks.fused {name}{steps} --write docs/data/{arguments.write.name}"
    model = arguments.shape or Path(arguments.model).name
    write_record(
        arguments.write,
        command=command,
        config={
            "model": model,
            "weights": "random" if arguments.shape else "real",
            "prompts": PROMPTS,
            "routes": ROUTES,
            "budgets": [REASONING, ANSWER],
        },
        seed=SEED,
        columns=COLUMNS,
        results=[dataclasses.asdict(figure) for figure in figures],
        device="cuda",
    )
    write_record(
        arguments.write.with_name(f"{arguments.write.stem}_profile.json"),
        command=command,
        config={"model": model, "prompts": PROMPTS, "route": "standard"},
        seed=SEED,
        columns=PROFILE_COLUMNS,
        results=tabulate_kernels(kernels),
        device="cuda",
    )


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--steps", action="store_true", help="decoding steps only, without generate")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    if (arguments.model is None) == (arguments.shape is None):
        parser.error("name a model or a --shape")
    frozen, model, prompts, stages = load_subject(arguments)
    decoder = FusedDecoder(model) if frozen is None else get_fused_decoder(frozen, FUSED)
    assert decoder is not None
    routes = draw_distinct_routes(len(decoder.weights.layers), ROUTES)
    if arguments.steps:
        figures = measure_steps(decoder, model, routes, prompts, REASONING + ANSWER)
    else:
        chosen = np.random.default_rng(SEED + 1).choice(ROUTES, COMPARED, replace=False)
        figures = measure_fused_decoding(decoder, model, routes, prompts, stages, [routes[index] for index in chosen])
    if frozen is not None and not arguments.steps:
        spent = figures[0].raw["generate_seconds"]
        figures.append(measure_round_with_savings(frozen, arguments.data_dir, sum(spent) / len(spent)))
    kernels = profile_kernels(decoder, [Route.standard(routes[0].layers)], prompts)
    print_figures(figures, kernels)
    if arguments.write:
        write_tables(arguments, figures, kernels)
    sys.exit(not all(figure.met for figure in figures))


if __name__ == "__main__":
    main()
