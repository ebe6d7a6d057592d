"""vLLM's own environment, and how programs are run in it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def vllm_python():
    """The environment's interpreter; without one the test is skipped, which under CI is a failure."""
    python = Path(os.environ.get("MACRO_VLLM_ENV") or ROOT / ".venv-vllm") / "bin" / "python"
    if not python.is_file():
        pytest.skip("there is no environment with vLLM: make vllm-env, or name one with MACRO_VLLM_ENV")
    return python


def vllm_settings(folder, **more):
    """The process's environment; compiled code is kept in ``folder``, so that no earlier run's is met."""
    # vLLM finds its compiler's and its own programs through the path.
    path = f"{vllm_python().parent}{os.pathsep}{os.environ['PATH']}"
    known = {name: value for name, value in os.environ.items() if name not in {"TRITON_INTERPRET", "OMP_NUM_THREADS"}}
    return {**known, **SETTINGS, "PATH": path, "VLLM_CACHE_ROOT": str(folder), **more}
