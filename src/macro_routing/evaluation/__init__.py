"""Routes × examples → scores, and whether a difference is real.

Public names are imported on first use: the statistics and the planted problem need no deep-learning library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.evaluation.decoding_settings import DecodingSettings
    from macro_routing.evaluation.evaluator import EvaluationSummary, Evaluator, evaluate
    from macro_routing.evaluation.planted_problem import PlantedProblem, solve_planted
    from macro_routing.evaluation.score_store import ScoreStore
    from macro_routing.evaluation.scoring_settings import UnitSizes
    from macro_routing.evaluation.statistics import best_of_many_p_value, compare_paired, smallest_detectable_gain

__all__ = [
    "DecodingSettings",
    "EvaluationSummary",
    "Evaluator",
    "PlantedProblem",
    "ScoreStore",
    "UnitSizes",
    "best_of_many_p_value",
    "compare_paired",
    "evaluate",
    "smallest_detectable_gain",
    "solve_planted",
]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "DecodingSettings": "decoding_settings",
        "EvaluationSummary": "evaluator",
        "Evaluator": "evaluator",
        "PlantedProblem": "planted_problem",
        "ScoreStore": "score_store",
        "UnitSizes": "scoring_settings",
        "best_of_many_p_value": "statistics",
        "compare_paired": "statistics",
        "evaluate": "evaluator",
        "smallest_detectable_gain": "statistics",
        "solve_planted": "planted_problem",
    },
)
