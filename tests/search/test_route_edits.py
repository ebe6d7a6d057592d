from hypothesis import given
from hypothesis import strategies as st

from macro_routing.routes import Route, RouteSpace, parse_route
from macro_routing.search.route_edits import (
    ProgramEdit,
    extract_program_edits,
    list_edits_of_standard_pass,
    list_edits_of_standard_pass_without_adds,
    program_from_edits,
)
from tests.strategies import small_spaces

SPACE = RouteSpace(28)


def test_every_single_edit_is_one_deviation_and_they_are_all_different():
    edits = list_edits_of_standard_pass(SPACE)
    programs = [program_from_edits(SPACE, [edit]) for edit in edits]
    assert all(len(extract_program_edits(SPACE, program)) == 1 for program in programs)
    routes = {program.to_route(28) for program in programs}
    assert len(routes) == len(edits)
    assert not any(route.is_standard for route in routes)
    adds = [edit for edit in edits if edit.action > SPACE.rejoin_action]
    assert len(list_edits_of_standard_pass_without_adds(SPACE)) + len(adds) == len(edits)
    plain_adds = [edit for edit in adds if SPACE.action_displacements[edit.action] == 1]
    assert all(program_from_edits(SPACE, [edit]).to_route(28).length == 28 for edit in plain_adds)


@given(small_spaces(), st.data())
def test_a_route_is_written_by_its_own_edits(space, data):
    edits = list_edits_of_standard_pass(space)
    if not edits:
        return
    chosen = data.draw(st.lists(st.sampled_from(edits), max_size=3))
    program = program_from_edits(space, sorted(chosen))
    if program is None:
        return
    route = program.to_route(space.layers)
    space.check_route(program)
    edits = extract_program_edits(space, space.route_to_program(route))
    again = program_from_edits(space, edits)
    # Later edits may lie in a part that is run a second time; then the way there needs the first visit passed by.
    if again is not None:
        space.check_route(again)
        assert len(extract_program_edits(space, again)) == len(edits)
    assert (edits == []) == route.is_standard


def test_an_edit_that_was_jumped_over_cannot_be_taken():
    skip, repeat = ProgramEdit(3, SPACE.forward_action + 3), ProgramEdit(5, SPACE.radius)
    assert program_from_edits(SPACE, [repeat]).to_route(28) == parse_route("L0-L5 L5 RJ", 28)
    assert program_from_edits(SPACE, [skip]).to_route(28) == parse_route("L0-L3 L7 RJ", 28)
    assert program_from_edits(SPACE, [skip, repeat]) is None


def test_edits_are_read_in_the_order_they_are_taken():
    program = parse_route("L0-L7 L3-L9 L9(+h-2) RJ", 28).program_with_earliest_rejoin()
    assert [edit.layer for edit in extract_program_edits(SPACE, program)] == [7, 9]
    assert extract_program_edits(SPACE, Route.standard(28).program_with_earliest_rejoin()) == []
