"""How often fused decoding changes an answer or a verdict: the same routes and prompts, eager and fused.

    python -m benchmarks.fused_verdicts MODEL [--data-dir FOLDER] [--write docs/data/fused_verdicts.json]

In bfloat16 another order of adding changes a token now and then; so does another batch on the eager path, which is
measured beside it: the eager path with the prompts in two halves.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.engine.decoders import EAGER, FUSED
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.model_answers import answer_with_every_route
from macro_routing.models import load_model
from macro_routing.routes import Route, RouteSpace
from macro_routing.search import MarkovPolicy
from macro_routing.tasks import load_task, make_splits

SEED = 0
CASES = (
    ("svamp", DecodingSettings("direct", answer_budget=96), 5, 64),
    ("gsm8k", DecodingSettings("reasoning", 160, 32), 3, 48),
)
COLUMNS = {
    "case": "case",
    "n": "answers",
    "texts": "other text, fused",
    "verdicts": "other verdict, fused",
    "half_texts": "other text, eager, half batches",
    "half_verdicts": "other verdict, eager, half batches",
    "right": "correct, eager / fused",
}


def measure_changed_verdicts(
    frozen: Any, case: tuple[str, DecodingSettings, int, int], data_dir: Path | None
) -> dict[str, Any]:
    """One task."""
    name, decoding, draws, count = case
    task = load_task(name, data_dir=data_dir)
    examples = make_splits(task, seed=SEED).train[:count]
    policy, rng = MarkovPolicy.make_prior(RouteSpace(frozen.layers)), np.random.default_rng(SEED)
    drawn = [policy.sample_program(rng).to_route(frozen.layers) for _ in range(draws - 1)]
    routes = list(dict.fromkeys([Route.standard(frozen.layers), *drawn]))

    def answer_all(decoder: str, parts: int) -> list[Any]:
        found = []
        for part in np.array_split(np.arange(count), parts):
            chosen = [examples[index] for index in part]
            answered = answer_with_every_route(frozen, routes, task, chosen, decoding, decoder=decoder)
            found.append([answered[route] for route in routes])
        return [outcome for index in range(len(routes)) for part in found for outcome in part[index]]

    eager, fused, halves = answer_all(EAGER, 1), answer_all(FUSED, 1), answer_all(EAGER, 2)

    def count_differences(other: list[Any], *names: str) -> int:
        return sum(any(getattr(a, n) != getattr(b, n) for n in names) for a, b in zip(eager, other, strict=True))

    return {
        "case": f"{name}, {decoding.mode}, {len(routes)} routes × {count} prompts",
        "n": len(eager),
        "texts": count_differences(fused, "reasoning", "text"),
        "verdicts": count_differences(fused, "correct"),
        "half_texts": count_differences(halves, "reasoning", "text"),
        "half_verdicts": count_differences(halves, "correct"),
        "right": f"{sum(one.correct for one in eager)} / {sum(one.correct for one in fused)}",
        "routes": [str(route) for route in routes],
    }


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    results = [measure_changed_verdicts(frozen, case, arguments.data_dir) for case in CASES]
    for result in results:
        print({name: result[name] for name in COLUMNS})
    if arguments.write:
        write_record(
            arguments.write,
            command="python -m benchmarks.fused_verdicts MODEL --write docs/data/fused_verdicts.json",
            config={"model": Path(arguments.model).name},
            seed=SEED,
            columns=COLUMNS,
            results=results,
            device="cuda",
        )


if __name__ == "__main__":
    main()
