"""What the pages write in place of a record's words: names for files, plain words, and what a page says once."""

import re

SYNTHETIC = "counting (synthetic)"
"""What the pages call the synthetic task ``counting``; the paper's Obj-Count is ``object_counting``."""
WORDING = {
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf": "Qwen2.5-Coder-1.5B",
    "qwen2.5-coder-1.5b.gguf": "Qwen2.5-Coder-1.5B",
    "qwen2.5-coder-0.5b.gguf": "Qwen2.5-Coder-0.5B",
    "smollm2-135m.gguf": "SmolLM2-135M",
    "not run: none of the seven models was at hand": "not run on the paper's models",
    "with the decision of 0.1.0": "with the earlier decision rule",
    "with the earlier decision": "with the earlier decision rule",
    "GPU-hours, at most": "GPU-hours, about",
    "MACRO is better than Baseline on 6 of 6 models (p < 0.05, corrected).": (
        "The same p-values, computed from the paper's printed accuracies: MACRO is better than Baseline on 6 of 6 "
        "models (p < 0.05, corrected)."
    ),
    "full state, top-1 (no validation)": "top-1, without validation",
    "played seconds": "simulated seconds",
    "held against": "compared with",
    "most tokens per item": "maximum tokens per item",
    "faster route returned": "route with fewer layers returned",
    "it lives and says nothing": "it no longer answers",
    "a route that kills its worker": "a route that crashes its worker",
    "A route that takes its worker down every time": "A route that crashes its worker every time",
    "54 routes other than the standard pass with plain adds": (
        "54 published routes that are not the standard pass and have no coefficients"
    ),
    "6 programs come out verbatim in the first round": "6 programs are among the first draws",
    "the printed figures come out": "the same figures as printed",
    "68 % cut off": "68 % truncated",
}
_SEARCHES = r"In these searches \((\d+) seed\(s\)\) the routes of (\d+) of (\d+) "
_SENTENCES = {
    rf"{_SEARCHES}variants are worse than the full state's: (.+?); the lowest is": (
        r"Variants that are worse than the full state, over \1 seeds: \4 (\2 of \3). The lowest is"
    ),
    rf"{_SEARCHES}values of (\w+) differ in accuracy from those of the default ([\d.]+): (.+)\.$": (
        r"Over \1 seeds, values of \4 that differ in accuracy from the default \5: \2 of \3 (\4 = \6)."
    ),
    r" of (\d+) \((?:\w+ = )?none\)": r" of \1",
}
"""Sentences of earlier versions of the studies, and today's."""


def reword(text: str) -> str:
    """The text of a record in the pages' words."""
    for earlier, now in _SENTENCES.items():
        text = re.sub(earlier, now, text)
    text = re.sub(r"^counting$|\bcounting(?=, (?:direct|reasoning)\b)", SYNTHETIC, text)
    text = re.sub(r"^\d{4,}(?= \()", lambda match: f"{int(match[0]):,}", text)
    text = re.sub(r"\b(\d+) (\w+)\(s\)", lambda match: f"{match[1]} {match[2]}{'s' * (match[1] != '1')}", text)
    return re.sub("|".join(map(re.escape, WORDING)), lambda match: WORDING[match[0]], text)


def name_task(task: str) -> str:
    """A task as the pages call it."""
    return SYNTHETIC if task == "counting" else task
