"""Run by vLLM's own environment: cases from a file, greedy tokens and what the engine holds into another."""

import gc
import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.models import registry

# Of every class it has not met, vLLM asks another Python, which takes longer than an engine; servers still do.
registry._run_in_subprocess = lambda inspect: inspect()


def answer(case):
    """Greedy tokens of one engine for all prompts at once, and what it holds; or why it refused the route."""
    try:
        llm = LLM(
            case["folder"],
            hf_overrides=case["overrides"],
            dtype="float32",
            enforce_eager=case["eager"],
            skip_tokenizer_init=True,
            max_model_len=128,
            max_num_seqs=8,
            disable_log_stats=True,
            **case.get("settings", {}),
        )
    except Exception as error:  # noqa: BLE001 what a bad route must end with is the test's business
        return {"refusal": f"{type(error).__name__}: {error}"}
    finally:
        gc.collect()
    written = [list(one.outputs[0].token_ids) for one in _generate(llm, case["prompts"], case["new_tokens"])]
    # Nothing of these is read from a cache: vLLM computes the whole prompt where its log-probabilities are asked for.
    scored = _generate(llm, case["prompts_to_score"], 1, prompt_logprobs=0) if "prompts_to_score" in case else []
    held = llm.apply_model(_held)[0]
    del llm
    cleanup_dist_env_and_memory()
    return {"tokens": written, "prompt_logprobs": [_prompt_logprobs(one) for one in scored], **held}


def _generate(llm, prompts, new_tokens, **settings):
    sampling = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, detokenize=False, **settings)
    return llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)


def _prompt_logprobs(output):
    """The log-probability of every token of the prompt but the first."""
    pairs = zip(output.prompt_logprobs[1:], output.prompt_token_ids[1:], strict=False)
    return [by_token[token].logprob for by_token, token in pairs]


def _held(model):
    """How many KV slots there are, how many layers' weights, and how many numbers in all of them."""
    from vllm.model_executor.layers.attention import Attention

    slots = model.model.vllm_config.compilation_config.static_forward_context.values()
    return {
        "slots": sum(isinstance(slot, Attention) for slot in slots),
        "layers": len({id(step.self_attn.qkv_proj) for step in model.model.macro_steps}),
        "parameters": sum(value.numel() for value in model.parameters()),
    }


def main():
    """Read the cases, write the answers."""
    cases = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps([answer(case) for case in cases]))


if __name__ == "__main__":
    main()
