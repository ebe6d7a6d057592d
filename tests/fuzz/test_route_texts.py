"""Texts that may or may not be routes: a route or an error of our own comes out."""

from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.errors import MacroError
from macro_routing.routes import Program, Route, parse_program, parse_route
from tests.strategies import programs

PIECES = st.sampled_from(
    ["L", "0", "7", "-", "L0-L7", "(", ")", "+", "h-", "RJ", " ", ",", "..", "[", "]", "{", "}", '"steps"', ":", "\n",
     "slices:", "merge_method: passthrough", "0.25", "e9", "NaN", "- ", "sources", "layer_range", "&a", "*a", "!!", "–",
     "9999999999", "\x00", "٣", "true", "null", "'"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(), st.lists(PIECES).map("".join), programs().map(str), st.binary().map(lambda b: b.decode("latin-1"))
)


@settings(max_examples=3_000, deadline=None)
@given(TEXTS, st.one_of(st.none(), st.integers(-2, 40)))
def test_nothing_but_a_route_or_our_own_error_comes_out(text, layers):
    try:
        route = parse_route(text, layers)
    except MacroError:
        return
    assert isinstance(route, Route)


@settings(max_examples=1_000, deadline=None)
@given(TEXTS)
def test_no_text_breaks_the_program_parser(text):
    try:
        program = parse_program(text)
    except MacroError:
        return
    assert isinstance(program, Program)
    assert parse_program(str(program)) == program
