"""Running many routes of one model over many prompts: likelihoods of choices, and greedy generation.

Public names are imported on first use, since torch takes seconds to load and ``macro --help`` should not need it.
"""

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.engine.decoders import DECODERS, get_fused_decoder
    from macro_routing.engine.generation import DecodingStage, GeneratedText, GenerationRequest, generate_greedy
    from macro_routing.engine.likelihood import (
        ChoiceItem,
        score_choices,
        score_choices_for_pairs,
        score_choices_for_routes,
    )
    from macro_routing.engine.route_generation import generate_for_pairs, generate_for_routes

__all__ = [
    "DECODERS",
    "ChoiceItem",
    "DecodingStage",
    "GeneratedText",
    "GenerationRequest",
    "generate_for_pairs",
    "generate_for_routes",
    "generate_greedy",
    "get_fused_decoder",
    "score_choices",
    "score_choices_for_pairs",
    "score_choices_for_routes",
]

__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "DECODERS": "decoders",
        "ChoiceItem": "likelihood",
        "DecodingStage": "generation",
        "GeneratedText": "generation",
        "GenerationRequest": "generation",
        "generate_for_pairs": "route_generation",
        "generate_for_routes": "route_generation",
        "generate_greedy": "generation",
        "get_fused_decoder": "decoders",
        "score_choices": "likelihood",
        "score_choices_for_pairs": "likelihood",
        "score_choices_for_routes": "likelihood",
    },
)
