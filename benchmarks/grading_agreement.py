"""How often the graders disagree with an independent reader of the same answers.

    python -m benchmarks.grading_agreement ANSWERS.json VERDICTS.jsonl [--data-dir FOLDER] [--write FILE]

ANSWERS is a JSON list of rows as ``benchmarks.written_answers`` makes them, VERDICTS one line per row that was read
blind: {"n": place in ANSWERS, "verdict": "right" | "wrong" | "unclear"}. Neither is in the repository: the answers
quote questions. Rows used while writing the graders must not be among them.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from benchmarks.record import write_record
from macro_routing.tasks import load_task

KINDS = {"number": "numbers", "choice": "letters", "math": "MATH"}
COLUMNS = {
    "answers": "answers",
    "n": "read",
    "right": "right, says the reader",
    "wrongly_right": "graded right, read as wrong",
    "wrongly_wrong": "graded wrong, read as right",
    "disagreement": "disagreement (%)",
}


def main() -> None:
    """Grade the answers again and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("verdicts", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    rows = json.loads(arguments.answers.read_text(encoding="utf-8"))
    lines = arguments.verdicts.read_text(encoding="utf-8").splitlines()
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*KINDS.values(), "all")}
    tasks = {name: load_task(name, data_dir=arguments.data_dir) for name in {row["task"] for row in rows}}
    for line in lines:
        read = json.loads(line)
        row = rows[read["n"]]
        task = tasks[row["task"]]
        text = f"The answer is{row['text']}" if row["cue"] else row["text"]
        correct = task.grader(text, row["answer"], tuple(row["choices"])).correct
        right = read["verdict"] == "right"
        for name in (KINDS[task.kind], "all"):
            counts[name].update(n=1, right=right, wrongly_right=correct and not right)
            counts[name].update(wrongly_wrong=right and not correct, unclear=read["verdict"] == "unclear")
    results = [
        {
            "answers": name,
            **{key: found[key] for key in ("n", "right", "wrongly_right", "wrongly_wrong", "unclear")},
            "disagreement": 100 * (found["wrongly_right"] + found["wrongly_wrong"]) / found["n"],
        }
        for name, found in counts.items()
        if found["n"]
    ]
    print(json.dumps(results, indent=1))
    if arguments.write:
        write_record(
            arguments.write,
            command="python -m benchmarks.grading_agreement ANSWERS.json VERDICTS.jsonl",
            config={
                "answers": "Qwen2.5-Coder-1.5B, 14 benchmarks, direct and reasoning, standard pass and one route",
                "reader": "a language model that saw question, choices, right answer and text, not the verdict",
                "sample": "420 different answers of the half that was not used to write the graders",
                "note": "measured before ratios written as fractions were accepted, which this sample showed",
            },
            seed=7,
            columns=COLUMNS,
            results=results,
        )


if __name__ == "__main__":
    main()
