"""The changed searches of the planted tables: the paper's where nothing is changed, and changed where it is."""

import numpy as np
import pytest

from benchmarks.varied_search import VariedSearch
from experiments.planted_searches import PAPER
from macro_routing.routes.space import RouteSpace
from macro_routing.search.macro import MacroSearch
from macro_routing.search.searcher import Score

SPACE = RouteSpace(layers=6, max_length=9)


def after_a_round(searcher, best):
    """The first round, and the policy after it, when routes for which ``best`` holds are right everywhere."""
    start = searcher.start()
    asked = searcher.ask(start)
    scores = [Score(len(asked.examples) * best(one.route), len(asked.examples)) for one in asked.proposals]
    return asked, searcher.policy(searcher.tell(start, asked, scores))


def searcher(**changes):
    return VariedSearch(SPACE, 100, PAPER, 3, **changes)


def test_without_changes_it_is_the_papers():
    for best in (lambda route: route.is_standard, lambda route: route.length > 6):
        before = after_a_round(MacroSearch(SPACE, 100, PAPER, 3), best)[1]
        assert np.array_equal(after_a_round(searcher(), best)[1].table, before.table)


def test_the_prior_stays_under_every_policy():
    kept, bare = (after_a_round(searcher(floor=share), lambda route: route.is_standard)[1] for share in (0.3, 0.0))
    prior = searcher().policy(searcher().start())
    assert np.allclose(kept.table, 0.7 * bare.table + 0.3 * prior.table)


@pytest.mark.parametrize("change", ["without_standard", "without_copies"])
def test_who_may_not_be_elite_moves_nothing(change):
    asked, policy = after_a_round(searcher(**{change: True}), lambda route: route.is_standard)
    _, plain = after_a_round(searcher(), lambda route: route.is_standard)
    standard = [one for one in asked.proposals if one.route.is_standard]
    others = [one for one in asked.proposals if not one.route.is_standard]
    assert len(standard) >= PAPER.elite  # else nothing would be seen here
    # All of the elite was the standard pass; now others are of it.
    assert max(policy.log_probability(one.program) for one in others) > max(
        plain.log_probability(one.program) for one in others
    )
