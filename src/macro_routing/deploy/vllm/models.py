"""vLLM's decoders on a route or a mixture (vLLM imports this module through its registry).

vLLM builds and loads the layers, so checkpoints, quantization and tensor names do not change. Only the order in which
``forward`` calls the layers differs. The members of a mixture run in the same pass; their final states travel side by
side in one tensor, since vLLM only picks rows of it, to ``compute_logits``.
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
from macro_routing.models.mixing import combine_logits, follows_last_step, list_saved_steps, plan_mixture_steps
from macro_routing.routes.mixture import to_mixture

_BATCH_DIMENSIONS = {"input_ids": 0, "positions": -1, "intermediate_tensors": 0, "inputs_embeds": 0}
"""The batch dimension of each argument."""


def _make_routed_vllm_decoder_class(stock: Any) -> Any:
    """Make a decoder class that runs the route in its configuration."""

    class RoutedVllmDecoderModule(stock):  # type: ignore[misc]
        def __init__(self, *, vllm_config: VllmConfig, prefix: str = "", **further: Any) -> None:
            mixture = to_mixture(read_route_from_hf_config(vllm_config.model_config.hf_config))
            check_engine_config(vllm_config, mixture)
            # Otherwise compiled code counts mixture-of-experts layers in the standard order.
            vllm_config.compilation_config.fast_moe_cold_start = False
            super().__init__(vllm_config=vllm_config, prefix=prefix, **further)
            self.macro_mixture = mixture
            self.macro_plan = plan_mixture_steps(mixture.routes)
            numbers = [node.step.layer for node in self.macro_plan]
            steps, self.macro_attentions = build_step_layers(self, numbers, vllm_config.compilation_config, prefix)
            # In a module list the repeats would be registered as weights again, under names that no checkpoint has.
            object.__setattr__(self, "macro_steps", steps)

        def forward(
            self,
            input_ids: torch.Tensor | None,
            positions: torch.Tensor,
            intermediate_tensors: IntermediateTensors | None = None,  # noqa: ARG002 pipeline stages are rejected above
            inputs_embeds: torch.Tensor | None = None,
        ) -> torch.Tensor:
            hidden = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
            return _run_steps(self, positions, hidden)

    return support_torch_compile(dynamic_arg_dims=_BATCH_DIMENSIONS)(RoutedVllmDecoderModule)


def _run_steps(decoder: Any, positions: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """The final state of a route; those of a mixture's members side by side.

    Layers return the residual stream in two parts, which are summed where a later step needs it. They may write into
    what they get, so they get copies of states that are kept.
    """
    plan, members = decoder.macro_plan, len(decoder.macro_mixture.members)
    last_slots = {member: slot for slot, node in enumerate(plan) for member in node.ends}
    kept = list_saved_steps(plan) | (set(last_slots.values()) if members > 1 else set())
    states: dict[int | None, torch.Tensor] = {}
    residual = None
    if None in kept:
        states[None], hidden = hidden, hidden.clone()
    for slot, (layer, node) in enumerate(zip(decoder.macro_steps, plan, strict=True)):
        if not follows_last_step(node, slot):
            hidden, residual = states[node.parent].clone(), None
        if node.add_source is not None:
            hidden, residual = (hidden if residual is None else hidden + residual), None
            hidden = hidden + node.step.add.coefficient * states[node.add_source]
        hidden, residual = layer(positions, hidden, residual)
        if slot in kept:
            states[slot] = hidden + residual
            hidden, residual = states[slot].clone(), None
    normed: torch.Tensor
    if members > 1:
        normed = decoder.norm(torch.stack([states[last_slots[member]] for member in range(members)], dim=1))
        return normed.flatten(1)
    normed = decoder.norm(hidden, residual)[0]
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

        def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
            mixture = self.model.macro_mixture
            members = len(mixture.members)
            logits: torch.Tensor | None
            logits = super().compute_logits(torch.cat(hidden_states.chunk(members, dim=-1)))
            # With tensor parallelism, some processes may get none.
            if logits is None or mixture.is_single:
                return logits
            return combine_logits(logits.chunk(members), mixture)

    RoutedForCausalLM.__name__ = RoutedForCausalLM.__qualname__ = f"Macro{family}ForCausalLM"
    return RoutedForCausalLM


MacroLlamaForCausalLM = _make_routed_model_class(llama, "Llama")
MacroMistralForCausalLM = _make_routed_model_class(mistral, "Mistral")
MacroMixtralForCausalLM = _make_routed_model_class(mixtral, "Mixtral")
MacroQwen2ForCausalLM = _make_routed_model_class(qwen2, "Qwen2")
MacroQwen3ForCausalLM = _make_routed_model_class(qwen3, "Qwen3")
MacroQwen3MoeForCausalLM = _make_routed_model_class(qwen3_moe, "Qwen3Moe")
