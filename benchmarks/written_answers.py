"""Answers a real model wrote to benchmark questions, for judging the graders: some hundred texts with their verdicts.

    python -m benchmarks.written_answers MODEL OUTPUT.jsonl [--data-dir FOLDER] [--per-task 24]

The texts quote questions, so the file stays out of the repository; what is kept is how often an independent reader
disagreed with a verdict (``docs/data/grading.json``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from macro_routing.evaluation.decoding import Decoding
from macro_routing.evaluation.evaluator import Evaluator
from macro_routing.models import load_model
from macro_routing.routes import Route, parse_route
from macro_routing.tasks import load_task, make_splits

TASKS = (
    *("gsm8k", "svamp", "asdiv", "mawps", "gsm8k_hard", "gsm8k_plus", "multiarith", "object_counting"),
    *("math500", "medqa", "openbookqa", "sciq", "mmlu_pro", "arc_easy"),
)
SEED = 7


def main() -> None:
    """Let the model answer the first test items of every task, directly and with reasoning, by two routes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("output", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--per-task", type=int, default=24)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    arguments = parser.parse_args()
    frozen = load_model(arguments.model)
    routes = [Route.standard(frozen.layers), parse_route("L0-L8 L7 RJ", frozen.layers)]
    with arguments.output.open("w", encoding="utf-8") as file:
        for name in arguments.tasks:
            task = load_task(name, data_dir=arguments.data_dir, seed=SEED)
            examples = make_splits(task, seed=SEED).test[: arguments.per_task]
            for mode in ("direct", "reasoning"):
                evaluator = Evaluator(frozen, task, Decoding(mode, reasoning_budget=200, answer_budget=96))
                for route, evaluated in evaluator.evaluate(routes, examples).items():
                    for example, outcome in zip(examples, evaluated.outcomes, strict=True):
                        row = {
                            "task": name,
                            "mode": mode,
                            "route": str(route),
                            "id": example.id,
                            "question": example.question,
                            "choices": example.choices,
                            "answer": example.answer,
                            "cue": task.prompts.cue if mode == "reasoning" else "",
                            "text": outcome.text,
                            "prediction": outcome.prediction,
                            "correct": outcome.correct,
                        }
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(f"{name}: {len(examples)} questions", flush=True)


if __name__ == "__main__":
    main()
