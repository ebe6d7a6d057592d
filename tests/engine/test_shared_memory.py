"""The attention kernel is compiled for GPUs that are not here: it must fit into their shared memory."""

import json
import os
import subprocess
import sys

from macro_routing.engine.fused.model_runner import choose_attention_block

SHARED_MEMORY = {75: 65_536, 80: 166_912, 86: 101_376, 90: 232_448}
"""Bytes that a program may take, by compute capability."""
COMPILE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from macro_routing.engine.fused.attention_kernels import attention_decode

def measure_shared_memory(capability, dtype, head, block):
    constants = dict(
        HEADS=8, KV_HEADS=4, GROUP=2, PADDED=16, HALF=head // 2, HALF_BLOCK=head // 2, BLOCK=block, SPLITS=8,
        NORMED=False, ROUND_FIRST=True, CAPPED=True, PRECISION="ieee" if dtype == "fp32" else "tf32",
    )
    types = dict.fromkeys(("projected", "out", "keys", "values", "cosines", "sines"), "*" + dtype)
    types |= dict.fromkeys(("query_norm", "key_norm"), "*" + dtype)
    types |= dict.fromkeys(("split_outputs", "split_stats"), "*fp32")
    types |= dict.fromkeys(("split_counters", "row_sequence", "row_cache_start", "position", "start", "done"), "*i32")
    types |= dict.fromkeys(("call", "max_rows", "cache_tokens", "window"), "i32")
    types |= dict.fromkeys(("scale", "score_cap", "epsilon"), "fp32") | dict.fromkeys(constants, "constexpr")
    names = attention_decode.arg_names
    source = ASTSource(
        attention_decode,
        {name: types[name] for name in names},
        {(index,): constants[name] for index, name in enumerate(names) if name in constants},
        {(index,): [["tt.divisibility", 16]] for index, name in enumerate(names) if types[name].startswith("*")},
    )
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": 4, "num_stages": 2}).metadata.shared

print(json.dumps([measure_shared_memory(*kernel) for kernel in json.loads(sys.argv[1])]))
"""


def _measure_shared_memory(kernels):
    """By a Python of its own: in this one kernels are interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, json.dumps(kernels)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_largest_heads_fit_on_a_small_gpu():
    blocks = {
        dtype: choose_attention_block(256 * size, SHARED_MEMORY[75]) for dtype, size in (("fp16", 2), ("fp32", 4))
    }
    assert min(blocks.values()) >= 16  # what the tensor cores take
    needed = _measure_shared_memory([(75, dtype, 256, block) for dtype, block in blocks.items()])
    assert len(needed) == len(blocks)
    assert max(needed) <= SHARED_MEMORY[75]


def test_blocks_on_other_gpus_are_as_large_as_without_a_limit():
    for capability, size in SHARED_MEMORY.items():
        same = choose_attention_block(512, size) == choose_attention_block(512, None)
        assert same == (capability != 75)
