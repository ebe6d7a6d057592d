"""What a round showed, from its outcomes."""

import statistics

from macro_routing.evaluation.outcomes import RaceResult
from macro_routing.evaluation.statistics import wilson_interval
from macro_routing.runs.progress import RoundReport
from macro_routing.search.searcher import Round, Score, Stopped


def make_round_report(  # noqa: PLR0913
    asked: Round, rounds: int, raced: RaceResult, standard: RaceResult, seconds: float, prompt_tokens: float
) -> RoundReport:
    """Best and median of the draws beside the standard pass; stopped draws are counted, never averaged."""
    complete = [outcome.accuracy for outcome in raced.outcomes if isinstance(outcome, Score)]
    (same,) = standard.outcomes
    assert isinstance(same, Score)
    low, high = wilson_interval(same.accuracy, same.total)
    return RoundReport(
        asked.number + 1,
        rounds,
        len(asked.examples),
        max(complete, default=0.0),
        statistics.median(complete) if complete else None,
        sum(isinstance(outcome, Stopped) for outcome in raced.outcomes),
        len({proposal.route for proposal in asked.proposals}),
        same.accuracy,
        low,
        high,
        raced.computed + standard.computed,
        raced.requested - raced.computed,
        raced.truncated_share,
        seconds,
        raced.requested,
        sum(route.length * (seen * prompt_tokens + written) for route, seen, written in raced.answers),
    )
