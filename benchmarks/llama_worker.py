"""Run by the interpreter that has llama-cpp-python: all logits of some prompts, into a file.

    python benchmarks/llama_worker.py MODEL.gguf PROMPTS.json LOGITS.npz

The prompts are lists of token numbers. It imports nothing of this project, which need not be installed there.
"""

import json
import sys
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np


def main() -> None:
    """Read the prompts one by one, each with an empty cache; keep the logits of every position."""
    gguf, prompts, logits = sys.argv[1:]
    tokens: list[list[int]] = json.loads(Path(prompts).read_text(encoding="utf-8"))
    longest = max(len(prompt) for prompt in tokens)
    model: Any = llama_cpp.Llama(
        gguf,
        n_ctx=longest,
        n_batch=longest,
        n_ubatch=longest,
        logits_all=True,
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        verbose=False,
    )
    found: dict[str, Any] = {}
    for number, prompt in enumerate(tokens):
        model.reset()
        model.eval(prompt)
        found[str(number)] = np.array(model.scores[: len(prompt)], dtype=np.float32)
    np.savez(logits, **found)
    print(llama_cpp.__version__)


if __name__ == "__main__":
    main()
