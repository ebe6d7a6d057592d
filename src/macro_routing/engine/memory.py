"""How much fits: batches by free memory, and what to do when it was not enough after all."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from macro_routing.errors import ModelError

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")

SHARE = 0.6
"""Of free memory: the rest is for what a layer needs while it runs, and for growing caches by copying."""


def free_bytes(device: torch.device) -> int:
    """Memory that can still be used on a device; of a GPU that others use, too, no more than torch may take."""
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
    """Keys and values of one token in one step."""
    config = model.config.get_text_config(decoder=True)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * heads * width * model.dtype.itemsize)


def most_cached_tokens(model: Any, steps: int) -> int:
    """How many tokens of a route with ``steps`` steps can be cached at once."""
    free = free_bytes(torch.device(model.device))
    return max(1, int(SHARE * free) // (cache_bytes_per_token(model) * steps))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; on CPU it comes as an ordinary runtime error."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@dataclass
class Fitting:
    """How much has turned out to fit at once: what was too much once is not tried again."""

    most: float = math.inf


def in_halves(
    run: Callable[[Sequence[_Item]], list[_Found]],
    items: Sequence[_Item],
    report: Callable[[str], None],
    fitting: Fitting | None = None,
) -> list[_Found]:
    """``run`` over ``items``; where memory runs out, over halves of them, and halves of those.

    ``fitting`` is for callers who come again with as many items of the same kind.
    """
    fitting = fitting or Fitting()
    if len(items) <= fitting.most:
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
        report(f"memory ran out with {len(items)} examples at once; going on with halves")
        fitting.most = (len(items) + 1) // 2
    half = len(items) // 2
    return in_halves(run, items[:half], report, fitting) + in_halves(run, items[half:], report, fitting)
