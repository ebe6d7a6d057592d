"""How hard the short synthetic tasks are for the built-in model: neither chance nor ceiling makes a useful demo.

python -m benchmarks.short_tasks [--write docs/data/short_tasks.json]
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from benchmarks.record import write_record
from macro_routing.evaluation.answering import answer
from macro_routing.evaluation.decoding import Decoding
from macro_routing.models import FrozenModel, load_model
from macro_routing.tasks import SYNTHETIC, Task, load_task

SEED = 77
EXAMPLES = 300
COLUMNS = {
    "task": "task",
    "accuracy": "accuracy, %",
    "margin": "± (95 %)",
    "chance": "chance, %",
    "tokens": "most tokens per item",
    "n": "n",
}


def measure(frozen: FrozenModel, task: Task) -> dict[str, Any]:
    """Accuracy of the standard pass, and the longest item."""
    examples = task.pools["test"][:EXAMPLES]
    right = sum(outcome.correct for outcome in answer(frozen, frozen.model, task, examples, Decoding("likelihood")))
    share = right / len(examples)
    pieces = [[example.question, *(f" {choice}" for choice in example.choices)] for example in examples]
    return {
        "task": task.name,
        "accuracy": 100 * share,
        "margin": 196 * math.sqrt(share * (1 - share) / len(examples)),
        "chance": 100 / len(examples[0].choices),
        "tokens": max(sum(len(frozen.tokenizer.encode(piece)) for piece in item) for item in pieces),
        "correct": right,
        "n": len(examples),
    }


def main() -> None:
    """Measure, print, write on request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the measurements to this JSON file")
    arguments = parser.parse_args()
    frozen = load_model()
    tasks = [load_task(name, seed=SEED) for name, task in SYNTHETIC.items() if task.kind == "choice"]
    results = [measure(frozen, task) for task in tasks]
    for result in results:
        accuracy, chance = result["accuracy"], result["chance"]
        print(f"{result['task']:<12} {accuracy:5.1f} % (chance {chance:.0f} %), at most {result['tokens']} tokens")
    if arguments.write:
        write_record(
            arguments.write,
            command=f"python -m benchmarks.short_tasks --write docs/data/{arguments.write.name}",
            config={"model": frozen.name, "mode": "likelihood", "weights_id": frozen.weights_id},
            seed=SEED,
            columns=COLUMNS,
            results=results,
        )


if __name__ == "__main__":
    main()
