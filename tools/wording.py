"""What the pages write in place of a record's words: names for files, plain words, and what a page says once."""

import re

SYNTHETIC = "counting (synthetic)"
"""What the pages call the synthetic task ``counting``; the paper's Obj-Count is ``object_counting``."""
WORDING = {
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf": "Qwen2.5-Coder-1.5B",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf": "Qwen2.5-Coder-0.5B",
    "qwen2.5-coder-1.5b.gguf": "Qwen2.5-Coder-1.5B",
    "qwen2.5-coder-0.5b.gguf": "Qwen2.5-Coder-0.5B",
    "smollm2-135m.gguf": "SmolLM2-135M",
    "nothing to search: the target told, and confirmed on all examples": "target given, the search is skipped",
    "time per token over (T/L) × standard": "time per token ÷ (T/L × that of the standard pass)",
}


def reword(text: str) -> str:
    """The text of a record in the pages' words."""
    text = re.sub(r"^counting$|\bcounting(?=, (?:direct|reasoning)\b)", SYNTHETIC, text)
    text = re.sub(r"^\d{4,}(?= \()", lambda match: f"{int(match[0]):,}", text)
    text = re.sub(r"\b(\d+) (\w+)\(s\)", lambda match: f"{match[1]} {match[2]}{'s' * (match[1] != '1')}", text)
    return re.sub("|".join(map(re.escape, WORDING)), lambda match: WORDING[match[0]], text)


def name_task(task: str) -> str:
    """A task as the pages call it."""
    return SYNTHETIC if task == "counting" else task
