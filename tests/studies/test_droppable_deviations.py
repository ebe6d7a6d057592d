"""Deviations can be dropped one by one, and dropping all leaves the standard pass."""

import json
from pathlib import Path

import pytest
from hypothesis import given

from macro_routing.routes import Route, parse_route
from macro_routing.routes.mixture import parse_mixture
from macro_routing.studies.droppable_deviations import list_route_deviations
from tests.strategies import programs

PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "published_routes.json").read_text())["routes"]


def test_what_a_route_does_in_words():
    route = parse_route("L0-L7 L3-L9 RJ", 12)
    (only,) = list_route_deviations(route)
    assert only.description == "inserts L3-L7 (step 9)"
    assert only.without == Route.standard(12)
    assert only.alone == route
    skipped, added = list_route_deviations(parse_route("L0 L3-L6 L5(+h-2) RJ", 8))
    assert skipped.description == "skips L1 L2 (after step 1)"
    assert added.description == "inserts L5(+h-2) L6 (step 6)"
    assert str(skipped.without) == "L0-L6 L5(+h-2) RJ"
    assert str(added.alone) == "L0-L6 L5(+h-2) RJ"


def test_an_add_behind_a_dropped_block_takes_another_state():
    block, add = list_route_deviations(parse_route("L0-L3 L2-L5 L6(+h-4) L7 RJ", 8))
    assert block.remark == "without it another state is added at L6(+h-4)"
    assert add.remark == ""  # its own place keeps its length
    near, _ = list_route_deviations(parse_route("L0-L3 L2-L5 L6(+h-2) L7 RJ", 8))
    assert near.remark == ""  # the state is behind the block in both


def test_the_standard_pass_has_none():
    assert list_route_deviations(Route.standard(5)) == []


def test_an_add_that_cannot_stand_alone_says_so():
    route = parse_route("L0 L0 L0 L1(+h-2) RJ", 3)
    found = list_route_deviations(route)
    assert any(one.alone is None or one.without is None for one in found)
    assert all(one.reason for one in found if one.alone is None or one.without is None)


@pytest.mark.parametrize("row", [row for row in PUBLISHED if row["route"]], ids=lambda row: row["route"][:40])
def test_dropping_one_after_the_other_ends_at_the_standard_pass(row):
    route = parse_route(row["route"], row["layers"])
    for _ in range(100):
        found = [one for one in list_route_deviations(route) if one.without is not None]
        if not found:
            break
        assert len(list_route_deviations(found[-1].without)) < len(list_route_deviations(route))
        route = found[-1].without
    assert route.is_standard


@given(programs().map(lambda program: program.to_route(12)))
def test_every_route_differs_by_what_is_listed(route):
    found = list_route_deviations(route)
    assert (not found) == route.is_standard
    for one in found:
        assert one.without != route
        assert one.alone is None or not one.alone.is_standard
    if len(found) == 1:
        assert found[0].alone in {None, route}
        assert found[0].without is None or found[0].without.is_standard


def test_members_without_a_positive_weight_stand_for_nothing():
    mixture = parse_mixture("0.7 [L0-L2 L4 RJ] + 0.3 [L0 L2 RJ] - 0.5 [L0-L3 L3 RJ]", 6)
    positive, _, negative = list_route_deviations(mixture)
    assert str(positive.alone) == "L0 L2 RJ"
    assert positive.without is not None
    assert negative.alone is None
    assert "chooses what is least probable" in negative.reason
    assert negative.without is not None
    pair = parse_mixture("1.5 [L0-L2 L4 RJ] - 0.5 [L0 L2 RJ]", 6)
    assert [part.without for part in list_route_deviations(pair)] == [None, parse_route("L0-L2 L4 RJ", 6)]
