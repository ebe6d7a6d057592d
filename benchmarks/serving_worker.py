"""One exported model in a process of its own: loads it, writes greedily, waits while its memory is looked at.

    python -m benchmarks.serving_worker {routed,hf,gguf} MODEL REQUEST

REQUEST is JSON: ``ids`` of the prompt, the numbers that ``ends`` the text, how many ``new`` tokens at most. The text
goes to standard output as one line of JSON; the process ends when its standard input does.
"""

import json
import sys
from typing import Any


def generate_with_transformers(folder: str, asked: dict[str, Any]) -> tuple[str, Any]:
    """The text of a checkpoint, loaded as any other; and the model, which must still be there when it is measured."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    models: Any = AutoModelForCausalLM
    tokenizers: Any = AutoTokenizer
    model = models.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([asked["ids"]])
    ends = asked["ends"]
    written = model.generate(ids, max_new_tokens=asked["new"], do_sample=False, eos_token_id=ends, pad_token_id=ends[0])
    text = tokenizers.from_pretrained(folder).decode(written[0, ids.shape[1] :], skip_special_tokens=True)
    return text, model


def generate_with_llama_cpp(path: str, asked: dict[str, Any]) -> tuple[str, Any]:
    """The same of a GGUF file, in float32 throughout."""
    import xllamacpp

    parameters: Any = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.n_ctx, parameters.n_parallel, parameters.warmup, parameters.verbosity = 512, 1, False, 0
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    request = {"prompt": asked["ids"], "max_tokens": asked["new"], "temperature": 0.0}
    server = xllamacpp.Server(parameters)
    answer = server.handle_completions(request)
    answer = json.loads(answer) if isinstance(answer, str) else answer
    return answer["choices"][0]["text"], server


def main() -> None:
    """Answer, then wait."""
    kind, path, request = sys.argv[1:]
    if kind == "routed":
        import macro_routing

        macro_routing.register()
    write = generate_with_llama_cpp if kind == "gguf" else generate_with_transformers
    text, _model = write(path, json.loads(request))
    print(json.dumps(text), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
