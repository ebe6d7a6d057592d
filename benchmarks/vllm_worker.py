"""Run by an interpreter that has vLLM: seconds of greedy decoding with random weights of a known shape.

    python benchmarks/vllm_worker.py REQUEST.json

The request names a ``folder`` with a ``config.json``, the token numbers of the ``prompts``, how many times they are
repeated in a batch (``copies``, a list), how many ``new`` tokens each text gets, the ``max_num_seqs`` and the number of
``repeats``. Every batch runs once before it is timed. Prints one line of JSON. Imports nothing of this project, which
need not be installed there.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import vllm


def main() -> None:
    """Time each batch."""
    request: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    prompts = [{"prompt_token_ids": tokens} for tokens in request["prompts"]]
    model: Any = vllm.LLM(
        model=request["folder"],
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=max(map(len, request["prompts"])) + request["new"] + 1,
        max_num_seqs=request["max_num_seqs"],
        max_num_batched_tokens=16384,
        enable_prefix_caching=False,
    )
    sampling = vllm.SamplingParams(temperature=0, max_tokens=request["new"], ignore_eos=True, detokenize=False)
    seconds: dict[int, list[float]] = {}
    for copies in request["copies"]:
        batch = prompts * copies
        for _ in range(1 + request["repeats"]):
            start = time.perf_counter()
            texts = model.generate(batch, sampling, use_tqdm=False)
            torch.cuda.synchronize()
            seconds.setdefault(copies, []).append(time.perf_counter() - start)
            assert all(len(text.outputs[0].token_ids) == request["new"] for text in texts)
    timed = {str(copies): samples[1:] for copies, samples in seconds.items()}
    print(json.dumps({"vllm": vllm.__version__, "torch": torch.__version__, "seconds": timed}), flush=True)


if __name__ == "__main__":
    main()
