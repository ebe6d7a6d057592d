import pytest
from hypothesis import given

from macro_routing.errors import RouteError
from macro_routing.routes import Add, Program, Route, Step, count_route_moves, parse_program, parse_route
from macro_routing.routes.route_moves import describe_deviations_from_standard_pass, render_route_ascii
from tests.strategies import programs


def test_programs_that_execute_the_same_steps_are_one_route():
    routes = {parse_program(text).to_route(28) for text in ("L0 RJ", "L0-L2 RJ", "L0-L27 RJ", "L0-L27")}
    assert routes == {Route.standard(28)}
    assert next(iter(routes)).is_standard


def test_rejoin_continues_after_the_last_layer_applied():
    route = parse_program("L0-L7 L3-L9 RJ").to_route(28)
    assert [step.layer for step in route.steps] == [*range(8), *range(3, 28)]
    assert route.length == 33


def test_a_program_without_rejoin_ends_where_it_ends():
    route = parse_program("L0-L4").to_route(8)
    assert route.length == 5
    assert not route.reaches_last_layer
    assert str(route) == "L0-L4"


@given(programs())
def test_printing_a_route_loses_nothing(program):
    route = program.to_route(12)
    assert parse_program(str(route)).to_route(12) == route


def test_routes_are_hashable_and_frozen():
    route = Route.standard(3)
    assert len({route, Route.standard(3)}) == 1
    with pytest.raises(AttributeError):
        route.layers = 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("L0-L3 L9 RJ", "step 5 applies layer 9, but the model's 8 layers are numbered 0 to 7"),
        (
            "L0 L1(+h-1) RJ",
            r"step 2 \(L1\(\+h-1\)\) looks back 1, but after 1 application an add can look back at most 0",
        ),
        ("L0-L3 L4(+h-4) RJ", "step 5 .* looks back 4, but after 4 applications an add can look back at most 3"),
    ],
)
def test_a_route_that_does_not_fit_names_step_and_rule(text, message):
    with pytest.raises(RouteError, match=message):
        parse_program(text).to_route(8)


def test_the_first_step_that_may_add_is_the_third():
    assert parse_program("L0 L1 L2(+h-1) RJ").to_route(8).has_adds


@pytest.mark.parametrize(
    "build", [lambda: Add(0), lambda: Add(1, 0.0), lambda: Add(1, float("nan")), lambda: Program(())]
)
def test_meaningless_values_are_rejected(build):
    with pytest.raises(RouteError):
        build()


@pytest.mark.parametrize("layers", [0, -1, 10**9])
def test_impossible_layer_counts_are_rejected(layers):
    with pytest.raises(RouteError, match="layers"):
        Route.standard(layers)


def test_routes_have_a_length_and_a_readable_repr():
    route = parse_route("L0-L3 L1 RJ", 8)
    assert len(route) == 11
    assert (
        repr([route, route.program_with_earliest_rejoin()])
        == "[Route('L0-L3 L1 RJ', layers=8), Program('L0-L3 L1 RJ')]"
    )


def test_composition_counts_what_differs():
    facts = count_route_moves(parse_route("L0-L3 L1(+h-2) L3(-0.25h-1) L5 L5 RJ", 8))
    assert facts.adds == 1
    assert facts.subtractions == 1
    assert facts.length == 10
    assert facts.repeats == 3  # L1, L3 and L5 once more each
    assert facts.skips == 1  # L4
    assert facts.back_jumps == 1
    assert facts.forward_jumps == 2


def test_standard_pass_differs_in_nothing():
    facts = count_route_moves(Route.standard(5))
    assert (facts.adds, facts.repeats, facts.skips, facts.back_jumps, facts.forward_jumps) == (0, 0, 0, 0, 0)
    assert describe_deviations_from_standard_pass(Route.standard(5)) == []


def test_differences_are_told_in_words():
    lines = describe_deviations_from_standard_pass(parse_route("L0-L3 L2(+h-1) L5 RJ", 8))
    assert "jumps back at step 5: L3 to L2" in lines
    assert "jumps ahead at step 6: L2 to L5" in lines
    assert "applies L2 2 times" in lines
    assert "never applies L4" in lines
    assert "adds an earlier state at step 5: L2(+h-1)" in lines
    assert describe_deviations_from_standard_pass(parse_route("L0 L1 L2(-0.5h-1) RJ", 8)) == [
        "subtracts an earlier state at step 3: L2(-0.5h-1)"
    ]
    assert describe_deviations_from_standard_pass(parse_route("L2-L4", 8)) == [
        "starts at L2",
        "ends early, after L4",
        "never applies L0-L1",
        "never applies L5-L7",
    ]


@pytest.mark.parametrize(
    ("text", "picture"),
    [
        ("L0 RJ", "0-------7"),
        ("L0-L3 L1 RJ", "0---3<1------7"),
        ("L0-L3 L3 RJ", "0---3=3----7"),
        ("L0-L3 L5 RJ", "0---3>5--7"),
        ("L0-L3 L4(+h-2) RJ", "0---3+4---7"),
        ("L0-L3 L1(-0.25h-2)", "0---3<~1"),
        ("L5", "5"),
    ],
)
def test_track_is_one_ascii_line(text, picture):
    drawn = render_route_ascii(parse_route(text, 8))
    assert drawn == picture
    assert drawn.isascii()


def test_a_step_prints_its_add():
    assert str(Step(5, Add(4))) == "L5(+h-4)"
    assert str(Step(2, Add(1, -0.25))) == "L2(-0.25h-1)"
    assert str(Step(2, Add(1, -1.0))) == "L2(-h-1)"
    assert str(Step(2, Add(1, 1e-7))) == "L2(+0.0000001h-1)"
