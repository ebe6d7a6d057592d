"""Routes × examples → scores, and whether a difference is real.

Public names are imported on first use: the statistics and the planted problem need no deep-learning library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macro_routing.evaluation.decoding import DecodingSettings
    from macro_routing.evaluation.evaluate_route import EvaluationSummary, evaluate
    from macro_routing.evaluation.evaluator import Evaluator
    from macro_routing.evaluation.planted import PlantedProblem, solve_planted
    from macro_routing.evaluation.score_store import ScoreStore
    from macro_routing.evaluation.statistics import compare_paired, smallest_detectable_gain

__all__ = [
    "DecodingSettings",
    "EvaluationSummary",
    "Evaluator",
    "PlantedProblem",
    "ScoreStore",
    "compare_paired",
    "evaluate",
    "smallest_detectable_gain",
    "solve_planted",
]
_MODULES = {
    "DecodingSettings": "decoding",
    "EvaluationSummary": "evaluate_route",
    "Evaluator": "evaluator",
    "PlantedProblem": "planted",
    "ScoreStore": "score_store",
    "compare_paired": "statistics",
    "evaluate": "evaluate_route",
    "smallest_detectable_gain": "statistics",
    "solve_planted": "planted",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
