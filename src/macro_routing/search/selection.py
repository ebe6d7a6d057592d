"""Which of the final candidates is chosen (specification §4, "Selection")."""

import math
from collections.abc import Callable, Sequence

from macro_routing.errors import SearchError
from macro_routing.search.searcher import Candidate, Outcome, Score


def select_candidate(
    candidates: Sequence[Candidate],
    validation: Sequence[Outcome],
    score_on_training: Callable[[Sequence[Candidate]], Sequence[Outcome]],
) -> Candidate:
    """The candidate with the best validation accuracy.

    Ties go to the better accuracy on the whole training set, which ``score_on_training`` is asked for only
    then and for the tied ones only; then to the shorter route, then to the more probable program.
    """
    if len(candidates) != len(validation):
        raise SearchError(f"there are {len(candidates)} candidates but {len(validation)} validation outcomes")
    scored = [
        (candidate, outcome)
        for candidate, outcome in zip(candidates, validation, strict=True)
        if isinstance(outcome, Score)
    ]
    if not scored:
        raise SearchError("no candidate could be scored on the validation set, so none can be selected")
    best = max(outcome.accuracy for _, outcome in scored)
    tied = [candidate for candidate, outcome in scored if outcome.accuracy == best]
    if len(tied) == 1:
        return tied[0]
    training = score_on_training(tied)
    return min(zip(tied, training, strict=True), key=lambda pair: _tie_break_key(*pair))[0]


def _tie_break_key(candidate: Candidate, training: Outcome) -> tuple[float, int, float]:
    accuracy = training.accuracy if isinstance(training, Score) else -math.inf
    probability = -math.inf if candidate.log_probability is None else candidate.log_probability
    return -accuracy, candidate.route.length, -probability
