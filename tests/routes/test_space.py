import math

import pytest

from macro_routing.errors import RouteOutsideSpaceError, SettingsError
from macro_routing.routes import RouteSpace, parse_program


def test_size_is_the_papers():
    space = RouteSpace(28, max_length=40)
    assert math.prod(space.table_shape[:-1]) == 28 * 3 * 12 * 2
    assert space.action_count == 11 + 66 + 1


@pytest.mark.parametrize(
    ("off", "count"),
    [
        ({"phase": False}, 28 * 12 * 2),
        ({"displacement": False}, 28 * 3 * 2),
        ({"operator": False}, 28 * 3 * 12),
        ({"displacement": False, "previous_layer": True}, 28 * 3 * 12 * 2),
    ],
)
def test_factors_can_be_switched(off, count):
    assert math.prod(RouteSpace(28, max_length=40, **off).table_shape[:-1]) == count


def test_actions_come_in_the_order_that_settles_ties():
    space = RouteSpace(4, radius=1, window=2, coefficients=(1.0, -0.25))
    named = [(delta, add and (add.back, add.coefficient)) for delta, add in space.action_displacements_and_adds]
    assert named[:3] == [(-1, None), (0, None), (1, None)]
    assert space.rejoin_action == 3
    assert named[4:8] == [(-1, (1, -0.25)), (0, (1, -0.25)), (1, (1, -0.25)), (-1, (1, 1.0))]


@pytest.mark.parametrize(("applied", "phase"), [(1, 0), (13, 0), (14, 1), (26, 1), (27, 2), (40, 2)])
def test_phases_change_at_the_thirds(applied, phase):
    assert RouteSpace(28, max_length=40).compute_route_length_phase(applied) == phase


def test_exact_thirds_belong_to_the_later_phase():
    space = RouteSpace(6, max_length=12)
    assert [space.compute_route_length_phase(applied) for applied in (3, 4, 7, 8)] == [0, 1, 1, 2]


def test_default_length_is_twelve_more():
    assert RouteSpace(30).max_length == 42


def test_the_rejoined_route_always_fits():
    space = RouteSpace(4, max_length=5, radius=2, window=0)
    space.check_route(parse_program("L0 L0 RJ"))
    with pytest.raises(
        RouteOutsideSpaceError, match=r"step 3 \(L0\) makes the route at least 6 long, but max_length is 5"
    ):
        space.check_route(parse_program("L0 L0 L0 RJ"))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("L0-L7", "ends with RJ"),
        ("L1 RJ", "begin with a plain L0"),
        ("L0 L6 RJ", r"step 2 \(L6\) moves by \+6, but the radius is 5"),
        ("L0-L9 L9(+h-7) RJ", "looks back 7, but the window is 6"),
        ("L0-L9 L9(-0.25h-1) RJ", "coefficient -0.25"),
        ("L0 L1(+h-1) RJ", "looks back 1, but only 1 states exist"),
        ("L0-L27 L28 RJ", "numbered 0 to 27"),
    ],
)
def test_programs_outside_name_step_and_rule(text, rule):
    with pytest.raises(RouteOutsideSpaceError, match=rule):
        RouteSpace(28, max_length=40).check_route(parse_program(text))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 28, "max_length": 27}, r"max_length \(T_max\) = 27 .* at least 28"),
        ({"layers": 0}, r"layers \(L\) = 0"),
        ({"layers": 28, "radius": 0}, r"radius \(r\) = 0"),
        ({"layers": 28, "window": -1}, r"window \(W\) = -1"),
        ({"layers": 28, "coefficients": ()}, "at least one number"),
        ({"layers": 28, "coefficients": (1.0, 1.0)}, "none twice"),
        ({"layers": 28, "coefficients": (0.0,)}, "none 0"),
        ({"layers": 28, "coefficients": 1.0}, "must be a list"),
        ({"layers": 28, "phase": 1}, "phase = 1 .* true or false"),
        ({"layers": "28"}, "layers"),
    ],
)
def test_impossible_settings_are_rejected_by_name(settings, message):
    with pytest.raises(SettingsError, match=message):
        RouteSpace(**settings)
