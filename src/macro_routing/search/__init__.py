"""How routes are proposed: the ask/tell interface, MACRO's policy and search, exact decoding, the peers' searches."""

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
