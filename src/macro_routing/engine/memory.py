"""Memory limits: how many tokens fit into the cache, and smaller batches when memory runs out."""

import gc
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from macro_routing.errors import ModelError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

CACHE_SHARE = 0.6
"""Share of the free memory for the cache: the rest is for running a layer, and for copies when a cache grows."""


def free_memory_bytes(device: torch.device) -> int:
    """The free memory of a device; on a shared GPU at most what torch may use."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device)
        allowed = int(total * torch.cuda.get_per_process_memory_fraction(device)) - reserved
        return max(0, min(free, allowed)) + reserved - torch.cuda.memory_allocated(device)
    with suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 only Linux has it
        for line in file:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return 4 << 30


def cache_bytes_per_token(model: Any) -> int:
    """The size of the keys and values of one token in one step."""
    config = model.config.get_text_config(decoder=True)
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * kv_heads * head_size * model.dtype.itemsize)


def max_cached_tokens(model: Any, steps: int) -> int:
    """The number of tokens that can be cached at once for a route with ``steps`` steps."""
    free = free_memory_bytes(torch.device(model.device))
    return max(1, int(CACHE_SHARE * free) // (cache_bytes_per_token(model) * steps))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; on a CPU it is an ordinary runtime error."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@dataclass
class BatchLimit:
    """The largest batch that is tried; lowered when memory runs out."""

    max_items: float = math.inf


def run_halving_on_oom(
    run: Callable[[Sequence[_Item]], list[_Result]],
    items: Sequence[_Item],
    report: Callable[[str], None],
    limit: BatchLimit | None = None,
) -> list[_Result]:
    """``run`` over ``items``; where memory runs out, over halves of them, and halves of those.

    Pass the same ``limit`` again for further items of the same kind, so that a batch that was too large is not retried.
    """
    limit = limit or BatchLimit()
    if len(items) <= limit.max_items:
        try:
            return run(items)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(items) == 1:
                raise ModelError(
                    "memory ran out with a single example; use a smaller model, quantization, smaller budgets or a"
                    f" device with more memory ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
                ) from None
        # Outside of the handler, where the traceback no longer holds the tensors of the failed attempt.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        report(f"memory ran out with {len(items)} examples at once; continuing with halves")
        limit.max_items = (len(items) + 1) // 2
    half = len(items) // 2
    return run_halving_on_oom(run, items[:half], report, limit) + run_halving_on_oom(run, items[half:], report, limit)
