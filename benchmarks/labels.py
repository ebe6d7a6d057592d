"""Labels for Dr.LLM through the shared engine against one prompt at a time through ``generate``, side by side.

    python -m benchmarks.labels MODEL [--data-dir FOLDER] [--write docs/data/labels.json]

The same simulations are timed on both sides: tree searches over some examples are run through the engine first, all of
them in step; then a part of the very pairs they asked for, fixed by a seed, goes through ``model.generate`` one by one.
"""

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record

TASK, EXAMPLES, COMPARED, SEED = "svamp", 100, 24, 0
TARGET = 10.0
COLUMNS = {
    "figure": "figure",
    "value": "measured",
    "target": "target",
    "detail": "how",
}


def measure_labelling(frozen: Any, data_dir: Path | None) -> dict[str, Any]:
    """Seconds per simulation on both sides."""
    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.evaluator import Evaluator
    from macro_routing.evaluation.model_answers import encode_prompts_and_generation_stages
    from macro_routing.peers.per_example_search import PerExampleSearch
    from macro_routing.peers.per_example_settings import DrLLMSettings
    from macro_routing.routes import Route, RouteSpace
    from macro_routing.search import ScoringFailure
    from macro_routing.tasks import load_task, make_splits

    task = load_task(TASK, data_dir=data_dir)
    decoding = DecodingSettings("direct", answer_budget=128)
    examples = make_splits(task, seed=SEED).train[:EXAMPLES]
    evaluator = Evaluator(frozen, task, decoding)
    labels = PerExampleSearch(RouteSpace(frozen.layers), len(examples), DrLLMSettings(), seed=SEED)
    asked: list[tuple[int, Route]] = []

    def score(pairs: list[tuple[int, Route]]) -> list[float]:
        asked.extend(pairs)
        found = evaluator.evaluate_pairs([(route, examples[index]) for index, route in pairs])
        return [0.0 if isinstance(one, ScoringFailure) else float(one.correct) for one in found]

    evaluator.run_pairs([(Route.standard(frozen.layers), examples[0])])  # kernels are compiled at their first use
    start = time.perf_counter()
    searches = labels.run_searches(score)
    shared = (time.perf_counter() - start) / len(asked)
    chosen = np.random.default_rng(SEED).choice(len(asked), min(COMPARED, len(asked)), replace=False)
    prompts, (stage,) = encode_prompts_and_generation_stages(frozen, task, examples, decoding)
    alone = _time_generate_per_pair(frozen, [(asked[n][1], prompts[asked[n][0]]) for n in chosen], stage)
    return {
        "figure": "labelling, per simulation, times as fast as generate one prompt at a time",
        "value": alone / shared,
        "target": TARGET,
        "detail": f"{len(asked)} simulations of {len(searches)} examples, {1000 * shared:.1f} ms each in step;"
        f" {len(chosen)} of them by generate, {1000 * alone:.0f} ms each",
        "raw": {
            "simulations": len(asked),
            "seconds_each_shared": shared,
            "seconds_each_generate": alone,
            "labelled": sum(search.label is not None for search in searches),
            "statistics": [dataclasses.asdict(search.statistics) for search in searches[:10]],
        },
    }


def _time_generate_per_pair(frozen: Any, pairs: list[tuple[Any, Any]], stage: Any) -> float:
    import torch

    from macro_routing.models import apply_route

    def write(route: Any, prompt: Any) -> None:
        ids = torch.tensor([prompt], device=frozen.model.device)
        routed = frozen.model if route.is_standard else apply_route(frozen, route)
        routed.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=stage.max_tokens,
            do_sample=False,
            eos_token_id=sorted(stage.end_tokens),
            pad_token_id=frozen.tokenizer.pad_token_id,
        )

    write(*pairs[0])
    start = time.perf_counter()
    for route, prompt in pairs:
        write(route, prompt)
    return (time.perf_counter() - start) / len(pairs)


def main() -> None:
    """Measure, print, write on request."""
    from macro_routing.models import load_model

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    found = measure_labelling(frozen, arguments.data_dir)
    print(f"{found['figure']}: {found['value']:.1f} (target {TARGET:g})\n    {found['detail']}")
    if arguments.write:
        write_record(
            arguments.write,
            command="python -m benchmarks.labels MODEL --write docs/data/labels.json",
            config={"model": Path(arguments.model).name, "task": TASK, "examples": EXAMPLES},
            seed=SEED,
            columns=COLUMNS,
            results=[found],
            device=frozen.model.device.type,
        )


if __name__ == "__main__":
    main()
