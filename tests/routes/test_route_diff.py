import pytest
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.errors import RouteError
from macro_routing.routes import Route, Step, parse_route
from macro_routing.routes.route_diff import describe_adds, describe_edit, diff_routes


def lines(old, new, layers=10):
    return [describe_edit(edit) for edit in diff_routes(parse_route(old, layers), parse_route(new, layers))]


def test_every_kind_of_edit():
    assert lines("L0-L3 L1 RJ", "L0-L3 L1 RJ") == []
    assert lines("L0 RJ", "L0-L3 L1-L3 RJ") == ["added at steps 5-7: L1 L2 L3"]
    assert lines("L0-L3 L7 RJ", "L0 L1 L7 RJ") == ["removed at steps 3-4: L2 L3"]
    assert lines("L0-L4 RJ", "L0-L4 L5(+h-2) RJ") == ["changed at step 6: L5 → L5(+h-2)"]
    assert lines("L0 L1 L2 L9", "L0 L5 L6 L9") == ["replaced at steps 2-3: L1 L2 → L5 L6"]


def test_an_add_says_which_state_it_takes():
    assert describe_adds(parse_route("L0 L1 L2 L7(-0.25h-2) RJ", 10)) == [
        "step 4: L7(-0.25h-2) takes the output of step 1 (L0)"
    ]


def test_very_long_routes_are_rejected():
    with pytest.raises(RouteError, match="up to 2000 steps"):
        diff_routes(Route((Step(0),) * 2001, 2), Route.standard(2))


STEPS = st.lists(st.integers(0, 4).map(Step), min_size=1, max_size=12)


@given(STEPS, STEPS)
def test_the_edits_turn_one_route_into_the_other(old, new):
    made = list(old)
    for edit in reversed(diff_routes(Route(tuple(old), 5), Route(tuple(new), 5))):
        made[edit.old_start - 1 : edit.old_start - 1 + len(edit.old)] = edit.new
    assert made == new
