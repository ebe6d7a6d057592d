"""vLLM plugin: routed models on unchanged checkpoints, selected by ``hf_overrides``.

vLLM calls ``register`` in each of its processes (entry point ``vllm.general_plugins``). Only names are registered
there; what needs torch or vLLM is imported when a routed model is built.
"""

from macro_routing.deploy.vllm.hf_overrides import ARCHITECTURES

__all__ = ["register"]


def register() -> None:
    """Register the routed architectures in vLLM."""
    from vllm import ModelRegistry

    known = ModelRegistry.get_supported_archs()
    for name in ARCHITECTURES.values():
        if name not in known:
            ModelRegistry.register_model(name, f"{__name__}.models:{name}")
