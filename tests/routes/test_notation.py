import json

import pytest
import yaml
from hypothesis import given

from macro_routing.errors import MacroError, NotationError, RouteError
from macro_routing.routes import Route, format_route, parse_program, parse_route
from tests.strategies import programs

EXAMPLE = "L0-L7 L3-L9 RJ"


@given(programs())
def test_text_round_trip(program):
    assert parse_program(str(program)) == program


@given(programs())
def test_json_round_trip(program):
    route = program.to_route(12)
    assert parse_route(format_route(route, "json"), 12) == route
    assert parse_route(format_route(route, "json"), None) == route


@given(programs())
def test_plain_forms_round_trip_and_adds_are_rejected(program):
    route = program.to_route(12)
    for form in ("ranges", "mergekit"):
        if route.has_adds:
            with pytest.raises(RouteError, match="cannot express the add at step"):
                format_route(route, form)
        else:
            assert parse_route(format_route(route, form), 12) == route


def test_short_range_lists_are_not_taken_for_rys_pairs():
    assert format_route(parse_route("L3 L5", 6), "ranges") == "3..3,5..5"
    assert format_route(parse_route("L3", 6), "ranges") == "3..3"


def test_runs_of_three_or_more_have_a_dash():
    assert str(parse_program("L0-L1 L3-L5 L5-L5 RJ")) == "L0 L1 L3-L5 L5 RJ"


def test_dashes_of_other_programs_are_understood():
    assert parse_program("\ufeffL0–L7 L2(−0.25h‑1) RJ") == parse_program("L0-L7 L2(-0.25h-1) RJ")
    assert parse_program("L" + "0" * 5000) == parse_program("L0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("RJ", "only RJ"),
        ("L0 RJ L1", "token 2 of 3, 'RJ': RJ ends a route"),
        ("L0 X3 RJ", "token 2 of 3, 'X3', is not part of a route"),
        ("L0-L7 L5(+h4) RJ", r"token 2 of 3, 'L5\(\+h4\)'"),
        ("L7-L3 RJ", "token 1 of 2, 'L7-L3': a run ascends"),
        ("L" + "0" * 5000 + "9" * 9, "layer numbers go up to 9999"),
        ("L0 L99999999 RJ", "layer numbers go up to 9999"),
        ("L0 L1 L2(+0h-1) RJ", "coefficient must be finite and not 0"),
        ("L0 L1 L2(+h-0) RJ", "at least 1 state"),
        ("l0 rj", "token 1 of 2, 'l0', is not part of a route; tokens are L7"),
    ],
)
def test_a_malformed_text_names_token_and_place(text, message):
    with pytest.raises(NotationError, match=message):
        parse_route(text, 28)


def test_endless_runs_are_rejected_before_they_fill_the_memory():
    with pytest.raises(NotationError, match="more than 100000 steps by token"):
        parse_program(" ".join(["L0-L9999"] * 1000))


def test_rys_pair():
    route = parse_route("45,52", 80)
    assert [step.layer for step in route.steps] == [*range(52), *range(45, 80)]
    assert parse_route("(3, 5)", 8) == parse_route("3,5", 8)
    with pytest.raises(NotationError, match="5,3 does not fit 8 layers"):
        parse_route("5,3", 8)


def test_range_list_has_both_ends():
    route = parse_route("0..14,12..14,15..39", 40)
    assert [step.layer for step in route.steps] == [*range(15), 12, 13, 14, *range(15, 40)]
    assert parse_route("0..2,2,3..7", 8).length == 9
    with pytest.raises(NotationError, match=r"range 2 of 2, '5\.\.3': a range ascends"):
        parse_route("0..4,5..3", 8)


def test_json_forms():
    assert parse_route("[0, 1, 1, 2]", 3).length == 4
    text = json.dumps({"steps": [0, 1, {"layer": 2, "back": 1, "coefficient": -0.25}], "rejoin": True})
    assert str(parse_route(text, 8)) == "L0 L1 L2(-0.25h-1) RJ"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[0, 1.5]", "step 2 of the JSON route: 1.5 is not"),
        ("[0, true]", "True is not"),
        ("[]", "at least one step"),
        ("[0, 1", "not"),
        ('{"steps": [0], "depth": 3}', "unknown key 'depth'"),
        ('{"steps": [{"layer": 0, "weight": 3}]}', "unknown key 'weight'"),
        ('{"steps": [{"layer": 0, "coefficient": 3}]}', "no 'back'"),
        ('{"steps": [0, 1, {"layer": 2, "back": 1, "coefficient": NaN}]}', "finite"),
        ('{"steps": [0], "layers": 9}', "written for 9 layers, but the model has 8"),
        ("[" * 100_000, "too many brackets within each other"),
    ],
)
def test_bad_json_routes(text, message):
    with pytest.raises(MacroError, match=message):
        parse_route(text, 8)


def _mergekit(**changes):
    source = {"model": "m", "layer_range": [0, 8], **changes}
    return yaml.safe_dump({"merge_method": "passthrough", "slices": [{"sources": [source]}]})


def test_mergekit_in():
    assert parse_route(_mergekit(), 8) == Route.standard(8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_mergekit(layer_range=[0, 9]), "slice 1: layer_range"),
        (_mergekit(layer_range=[4, 4]), "slice 1: layer_range"),
        (_mergekit(parameters={"scale": 0.5}), "scales weights"),
        ("merge_method: slerp\nslices: []", "only passthrough"),
        ("merge_method: passthrough\nslices: [1]", "exactly one source"),
        ("merge_method: [", "not readable YAML"),
        ("merge_method: !!python/object/apply:os.system [ls]\nslices: []", "not readable YAML"),
        (_mergekit() + "parameters: {scale: 0.5}", "scales weights"),
        (_mergekit(model=None), "names no model"),
        (_mergekit().rstrip() + "\n- sources:\n  - model: other\n    layer_range: [0, 2]\n", "one model"),
    ],
)
def test_bad_mergekit(text, message):
    with pytest.raises(NotationError, match=message):
        parse_route(text, 8)


def test_mergekit_out_is_half_open():
    configuration = yaml.safe_load(format_route(parse_route(EXAMPLE, 28), "mergekit", "./base"))
    spans = [part["sources"][0]["layer_range"] for part in configuration["slices"]]
    assert spans == [[0, 8], [3, 28]]
    assert configuration["slices"][0]["sources"][0]["model"] == "./base"


def test_layers_are_needed_where_the_text_does_not_say():
    with pytest.raises(NotationError, match="--layers"):
        parse_route(EXAMPLE, None)
    with pytest.raises(NotationError, match="token 2 of 3"):
        parse_route("L0 Lx RJ", None)
