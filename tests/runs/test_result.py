"""The verdict in words: what the test set shows, what the route costs, and whether it is recommended."""

import pytest

from macro_routing.evaluation.statistics import PairedComparison, compare_paired
from macro_routing.routes import parse_route
from macro_routing.runs.final_selection import FinalSelection
from macro_routing.runs.result import describe_chance_level, make_route_result
from macro_routing.search.decision_settings import DecisionSettings
from macro_routing.tasks.task import Example

LONGER, SHORTER, STANDARD = (parse_route(text, 10) for text in ("L0-L5 L5 RJ", "L0-L4 L6 RJ", "L0 RJ"))


def compare(fixed: int, broken: int, n: int = 400) -> PairedComparison:
    standard = [False] * fixed + [True] * broken + [True] * (n - fixed - broken)
    routed = [True] * fixed + [False] * broken + [True] * (n - fixed - broken)
    return compare_paired(standard, routed, seed=1)


@pytest.mark.parametrize(
    ("route", "counts", "decision", "words", "recommended"),
    [
        (LONGER, (60, 10), {}, "The route is better than the standard pass by +12.5 points", True),
        (LONGER, (60, 10), {}, "It runs 11 layers for 10, 10 % more.", True),
        (LONGER, (12, 10), {}, "No evidence of a gain: +0.5 points", True),
        (LONGER, (10, 10), {}, "So the standard pass is recommended instead.", False),
        (LONGER, (10, 15), {}, "No evidence of a gain: -1.2 points", False),
        (LONGER, (8, 18), {}, "The route is probably worse than the standard pass: -2.5 points", False),
        (LONGER, (0, 5), {}, "The route is probably worse than the standard pass: -1.2 points", False),
        (LONGER, (0, 1), {}, "No evidence of a gain: -0.2 points", False),
        (LONGER, (10, 60), {}, "The route is worse than the standard pass: -12.5 points", False),
        (SHORTER, (10, 10), {"objective": "speed"}, "within 3 points, with 10 % fewer layers: +0.0 points", True),
        (SHORTER, (40, 45), {"objective": "speed"}, "does not show whether the route, with 10 % fewer layers", True),
        (SHORTER, (10, 60), {"objective": "speed"}, "is worse than the standard pass: -12.5 points", False),
        (STANDARD, (0, 0), {}, "No better route was found: the standard pass was chosen", True),
        (STANDARD, (0, 0), {"objective": "speed"}, "No route with fewer layers that is as accurate was found", True),
    ],
)
def test_the_verdict_says_what_is_certain_and_what_it_costs(route, counts, decision, words, recommended):
    result = make_route_result(FinalSelection(route, ()), [], compare(*counts), "run", DecisionSettings(**decision))
    assert words in result.verdict
    assert result.recommended is recommended
    assert ("recommended instead" in result.verdict) is not recommended
    assert result.verdict.count("layers") <= 2


def test_a_route_that_the_test_set_does_not_confirm_is_told_with_what_the_decision_knew():
    line = {"route": str(SHORTER), "p_value": 0.045, "required_gain": 0.0}
    line |= {"correct": 20, "n": 35, "holdout": 14, "holdout_n": 27}
    selection = FinalSelection(SHORTER, (line,))
    verdict = make_route_result(selection, [], compare(12, 6, 60), "run", DecisionSettings()).verdict
    assert "No evidence of a gain" in verdict
    assert "with 30 % of the verdicts changed" in verdict
    assert "passed the decision (p = 0.045 on 62 held-out examples), but the test set does not confirm it" in verdict


@pytest.mark.parametrize(("correct", "is_told"), [(15, True), (20, True), (40, False)])
def test_a_model_that_guesses_is_told(correct, is_told):
    test = [Example(str(index), "q", "a", choices=("a", "b", "c", "d")) for index in range(60)]
    assert (
        bool(describe_chance_level(test, compare_paired([True] * correct + [False] * (60 - correct), [True] * 60)))
        is is_told
    )
    generated = [Example(str(index), "q", "a") for index in range(60)]
    assert not describe_chance_level(generated, compare_paired([False] * 60, [True] * 60))
