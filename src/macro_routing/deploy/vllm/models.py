"""vLLM's decoders on a route (vLLM imports this module through its registry).

vLLM builds and loads the layers, so checkpoints, quantization and tensor names do not change. Only the order in which
``forward`` calls the layers differs.
"""

from types import ModuleType
from typing import Any

import torch
from vllm.compilation.decorators import support_torch_compile
from vllm.config import VllmConfig
from vllm.model_executor.models import llama, mistral, mixtral, qwen2, qwen3, qwen3_moe
from vllm.sequence import IntermediateTensors

from macro_routing.deploy.vllm.hf_overrides import read_route_from_hf_config
from macro_routing.deploy.vllm.steps import build_step_layers, check_engine_config

_BATCH_DIMENSIONS = {"input_ids": 0, "positions": -1, "intermediate_tensors": 0, "inputs_embeds": 0}
"""The batch dimension of each argument."""


def _make_routed_vllm_decoder_class(stock: Any) -> Any:
    """Make a decoder class that runs the route in its configuration."""

    class RoutedVllmDecoderModule(stock):  # type: ignore[misc]
        def __init__(self, *, vllm_config: VllmConfig, prefix: str = "", **further: Any) -> None:
            route = read_route_from_hf_config(vllm_config.model_config.hf_config)
            check_engine_config(vllm_config)
            # Otherwise compiled code counts mixture-of-experts layers in the standard order.
            vllm_config.compilation_config.fast_moe_cold_start = False
            super().__init__(vllm_config=vllm_config, prefix=prefix, **further)
            steps, self.macro_attentions = build_step_layers(self, route, vllm_config.compilation_config, prefix)
            # In a module list the repeats would be registered as weights again, under names that no checkpoint has.
            object.__setattr__(self, "macro_steps", steps)
            self.macro_adds = {  # by step: the step whose input is added, and the coefficient
                index: (index - step.add.back, step.add.coefficient)
                for index, step in enumerate(route.steps)
                if step.add
            }

        def forward(
            self,
            input_ids: torch.Tensor | None,
            positions: torch.Tensor,
            intermediate_tensors: IntermediateTensors | None = None,  # noqa: ARG002 pipeline stages are rejected above
            inputs_embeds: torch.Tensor | None = None,
        ) -> torch.Tensor:
            hidden = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
            return _run_route_steps(self, positions, hidden)

    return support_torch_compile(dynamic_arg_dims=_BATCH_DIMENSIONS)(RoutedVllmDecoderModule)


def _run_route_steps(decoder: Any, positions: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Run the steps; layers return the residual stream in two parts, which are summed where an add needs it."""
    residual = None
    saved: dict[int, torch.Tensor] = {}
    sources = {source for source, _ in decoder.macro_adds.values()}
    for index, layer in enumerate(decoder.macro_steps):
        if index in sources or index in decoder.macro_adds:
            hidden, residual = (hidden if residual is None else hidden + residual), None
        if index in sources:
            saved[index] = hidden
        if index in decoder.macro_adds:
            source, coefficient = decoder.macro_adds[index]
            hidden = hidden + coefficient * saved[source]
        hidden, residual = layer(positions, hidden, residual)
    normed: torch.Tensor = decoder.norm(hidden, residual)[0]
    return normed


def _make_routed_model_class(module: ModuleType, family: str) -> Any:
    """Make the language model class around a routed decoder."""
    stock: Any = getattr(module, f"{family}ForCausalLM")
    decoder = _make_routed_vllm_decoder_class(getattr(module, f"{family}Model"))

    class RoutedForCausalLM(stock):  # type: ignore[misc]
        supports_lora = False
        supports_pp = False

        def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
            # The original class refers to its decoder class inside a long constructor.
            original = getattr(module, f"{family}Model")
            setattr(module, f"{family}Model", decoder)
            try:
                super().__init__(vllm_config=vllm_config, prefix=prefix)
            finally:
                setattr(module, f"{family}Model", original)

    RoutedForCausalLM.__name__ = RoutedForCausalLM.__qualname__ = f"Macro{family}ForCausalLM"
    return RoutedForCausalLM


MacroLlamaForCausalLM = _make_routed_model_class(llama, "Llama")
MacroMistralForCausalLM = _make_routed_model_class(mistral, "Mistral")
MacroMixtralForCausalLM = _make_routed_model_class(mixtral, "Mixtral")
MacroQwen2ForCausalLM = _make_routed_model_class(qwen2, "Qwen2")
MacroQwen3ForCausalLM = _make_routed_model_class(qwen3, "Qwen3")
MacroQwen3MoeForCausalLM = _make_routed_model_class(qwen3_moe, "Qwen3Moe")
