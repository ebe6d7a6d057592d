"""How routes are proposed: the ask/tell interface, MACRO's policy and search, exact decoding, the peers' searches.

Public names are imported on first use: the settings of the searches need no numpy.
"""

from typing import TYPE_CHECKING

from macro_routing.lazy_imports import make_lazy_imports

if TYPE_CHECKING:
    from macro_routing.search.decision_settings import DecisionSettings
    from macro_routing.search.guided import GuidedSearch
    from macro_routing.search.guided_settings import GuidedSettings
    from macro_routing.search.macro import MacroSearch, select_candidate
    from macro_routing.search.policy import MarkovPolicy
    from macro_routing.search.policy_settings import MacroSettings, RandomSettings
    from macro_routing.search.random_search import RandomSearch
    from macro_routing.search.searcher import (
        Candidate,
        Draw,
        Outcome,
        Proposal,
        Round,
        RoundSize,
        Score,
        ScoringFailure,
        Searcher,
        SearchState,
        StoppedScore,
    )
    from macro_routing.search.state_file import load_state, save_state
    from macro_routing.search.top_k import (
        decode_routes_by_total_probability,
        decode_standard_and_top_routes,
        decode_top_programs,
        decode_top_routes,
        iterate_programs,
    )

__all__ = [
    "Candidate",
    "DecisionSettings",
    "Draw",
    "GuidedSearch",
    "GuidedSettings",
    "MacroSearch",
    "MacroSettings",
    "MarkovPolicy",
    "Outcome",
    "Proposal",
    "RandomSearch",
    "RandomSettings",
    "Round",
    "RoundSize",
    "Score",
    "ScoringFailure",
    "SearchState",
    "Searcher",
    "StoppedScore",
    "decode_routes_by_total_probability",
    "decode_standard_and_top_routes",
    "decode_top_programs",
    "decode_top_routes",
    "iterate_programs",
    "load_state",
    "save_state",
    "select_candidate",
]
__getattr__, __dir__ = make_lazy_imports(
    __name__,
    {
        "Candidate": "searcher",
        "DecisionSettings": "decision_settings",
        "Draw": "searcher",
        "GuidedSearch": "guided",
        "GuidedSettings": "guided_settings",
        "MacroSearch": "macro",
        "MacroSettings": "policy_settings",
        "MarkovPolicy": "policy",
        "Outcome": "searcher",
        "Proposal": "searcher",
        "RandomSearch": "random_search",
        "RandomSettings": "policy_settings",
        "Round": "searcher",
        "RoundSize": "searcher",
        "Score": "searcher",
        "ScoringFailure": "searcher",
        "SearchState": "searcher",
        "Searcher": "searcher",
        "StoppedScore": "searcher",
        "decode_routes_by_total_probability": "top_k",
        "decode_standard_and_top_routes": "top_k",
        "decode_top_programs": "top_k",
        "decode_top_routes": "top_k",
        "iterate_programs": "top_k",
        "load_state": "state_file",
        "save_state": "state_file",
        "select_candidate": "macro",
    },
)
