"""What stopping looped answers saves, and how often it changes a verdict: routes drawn from the prior on real prompts.

    python -m benchmarks.loops MODEL [--data-dir FOLDER] [--write docs/data/loops.json]

Both ways run one after the other on the same routes and prompts.
"""

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write_record
from macro_routing.evaluation.decoding_settings import DecodingSettings
from macro_routing.evaluation.model_answers import answer_with_every_route
from macro_routing.models import load_model
from macro_routing.routes import Route, RouteSpace
from macro_routing.search import MarkovPolicy
from macro_routing.tasks import load_task, make_splits

SEED = 0
CASES = (
    ("svamp", DecodingSettings("direct", answer_budget=128), 32),
    ("gsm8k", DecodingSettings("reasoning", reasoning_budget=160, answer_budget=32), 32),
)
COLUMNS = {
    "case": "case",
    "n": "answers",
    "looped": "ended in a loop",
    "changed_texts": "of these: another text at the token limit",
    "changed_verdicts": "verdicts changed (of all)",
    "saved": "tokens not decoded (%)",
    "speedup": "times as fast",
}


def measure_loop_stopping(
    frozen: Any, case: tuple[str, DecodingSettings, int], draws: int, data_dir: Path | None
) -> dict[str, Any]:
    """One task, with and without."""
    name, decoding, count = case
    task = load_task(name, data_dir=data_dir)
    examples = make_splits(task, seed=SEED).train[:count]
    policy = MarkovPolicy.make_prior(RouteSpace(frozen.layers))
    rng = np.random.default_rng(SEED)
    drawn = [policy.sample_program(rng).to_route(frozen.layers) for _ in range(draws)]
    routes = list(dict.fromkeys([Route.standard(frozen.layers), *drawn]))
    seconds, found = [], []
    for stop in (False, True):
        start = time.perf_counter()
        settings = dataclasses.replace(decoding, stop_loops=stop)
        found.append(answer_with_every_route(frozen, routes, task, examples, settings))
        seconds.append(time.perf_counter() - start)
    pairs = [(a, b) for route in routes for a, b in zip(found[0][route], found[1][route], strict=True)]
    looped = [(a, b) for a, b in pairs if _is_loop(frozen, b)]
    tokens = sum(a.reasoning_tokens + a.answer_tokens for a, _ in pairs)
    return {
        "case": f"{name}, {decoding.mode}, {len(routes)} routes × {count} prompts",
        "n": len(pairs),
        "looped": len(looped),
        "changed_texts": sum((a.reasoning, a.text) != (b.reasoning, b.text) for a, b in looped),
        "changed_verdicts": sum(a.correct != b.correct for a, b in pairs),
        "saved": 100 * sum(_count_spared_tokens(frozen, b) for _, b in pairs) / tokens,
        "speedup": seconds[0] / seconds[1],
        "seconds": seconds,
        "tokens": tokens,
    }


def _is_loop(frozen: Any, outcome: Any) -> bool:
    return _count_spared_tokens(frozen, outcome) > 0


def _count_spared_tokens(frozen: Any, outcome: Any) -> int:
    """Tokens of a text that lie beyond the place where its loop was recognised."""
    from macro_routing.engine.generation import find_loop_period

    spared = 0
    for text, is_cut in ((outcome.reasoning, outcome.reasoning_truncated), (outcome.text, outcome.answer_truncated)):
        tokens = frozen.tokenizer.encode(text, add_special_tokens=False) if is_cut else []
        for seen in range(8, len(tokens), 8):
            if find_loop_period(tokens[:seen]):
                spared += len(tokens) - seen
                break
    return spared


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    results = [measure_loop_stopping(frozen, case, arguments.draws, arguments.data_dir) for case in CASES]
    for result in results:
        print({name: result[name] for name in COLUMNS})
    if arguments.write:
        write_record(
            arguments.write,
            command="python -m benchmarks.loops MODEL --write docs/data/loops.json",
            config={"model": Path(arguments.model).name, "draws": arguments.draws},
            seed=SEED,
            columns=COLUMNS,
            results=results,
            device=frozen.model.device.type,
        )


if __name__ == "__main__":
    main()
