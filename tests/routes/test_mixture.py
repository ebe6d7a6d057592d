"""Mixtures: what they may hold, their normal form, and how they are written."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macro_routing.errors import NotationError, RouteError
from macro_routing.routes import Route, parse_route
from macro_routing.routes.mixture import (
    MAX_MEMBERS,
    Member,
    Mixture,
    number_prefixes,
    parse_mixture,
    require_single_route,
    to_simplest_form,
)

LAYERS = 8
STANDARD = Route.standard(LAYERS)
SKIP, REPEAT, ADD = (parse_route(text, LAYERS) for text in ("L0-L3 L5 RJ", "L0-L4 L4 RJ", "L0-L3 L4(+h-2) RJ"))


def mix(*pairs):
    return Mixture(tuple(Member(route, weight) for route, weight in pairs))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ((), "at least one route"),
        ((*(Member(Route.from_layers(range(n), LAYERS)) for n in range(1, LAYERS + 1)), Member(ADD)), "at most"),
        ((Member(STANDARD), Member(Route.standard(6))), "models of 6, 8 layers"),
        ((Member(SKIP), Member(SKIP, 2.0)), "each route once"),
    ],
)
def test_members_that_cannot_be_added_are_rejected(members, message):
    assert MAX_MEMBERS == LAYERS
    with pytest.raises(RouteError, match=message):
        Mixture(members)


def test_a_route_is_a_mixture_of_one():
    single = Mixture.from_route(SKIP)
    assert single.is_single
    assert not single.is_standard
    assert (single.routes, single.weights, single.length, single.layers) == ((SKIP,), (1.0,), SKIP.length, LAYERS)
    assert str(single) == str(SKIP)
    assert Mixture.from_route(STANDARD).is_standard
    assert not mix((STANDARD, -1.0)).is_single


def test_the_order_of_members_does_not_matter():
    assert mix((SKIP, -0.5), (STANDARD, 1.5)) == mix((STANDARD, 1.5), (SKIP, -0.5))
    assert mix((SKIP, -0.5), (STANDARD, 1.5)).routes == (STANDARD, SKIP)


def test_the_normal_form_sums_to_one():
    contrast = Mixture.from_weights([(STANDARD, 1.0), (SKIP, -0.75), (STANDARD, 1.0), (REPEAT, 0.0)])
    assert contrast.routes == (STANDARD, SKIP)
    assert contrast.weights == pytest.approx((1.6, -0.6))
    assert Mixture.from_weights(zip(contrast.routes, contrast.weights, strict=True)) == contrast
    negative = Mixture.from_weights([(STANDARD, 0.5), (SKIP, -2.0)])
    assert negative.weights == (0.25, -1.0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([(SKIP, 1.0), (SKIP, -1.0)], "add up to 0 for every route; at least one route needs a weight"),
        ([(STANDARD, 0.0), (SKIP, 0.0)], "add up to 0 for every route"),
        ([], "at least one route"),
        ([(STANDARD, 1.0), (SKIP, float("nan"))], "must be a finite number up to 1e\\+100, not nan"),
        ([(STANDARD, 10**400), (SKIP, 1.0)], "must be a finite number"),
        ([(STANDARD, 1e200), (SKIP, 1e200)], "must be a finite number up to 1e\\+100, not 1e\\+200"),
        ([(STANDARD, float("inf")), (SKIP, 1.0)], "must be a finite number up to 1e\\+100, not inf"),
        ([(STANDARD, 1.0), (SKIP, -float("inf"))], "must be a finite number up to 1e\\+100, not -inf"),
    ],
)
def test_weights_without_a_normal_form_are_rejected(weights, message):
    with pytest.raises(RouteError, match=message):
        Mixture.from_weights(weights)


@pytest.mark.parametrize("weight", ["0", "1e999", "0.0000001"])
def test_a_text_with_an_unusable_weight_is_rejected(weight):
    with pytest.raises(RouteError, match="between 1e-06 and 1e\\+06 in size"):
        parse_mixture(f"[L0 RJ] - {weight} [L0-L3 L5 RJ]", LAYERS)


def test_a_text_with_too_many_routes_or_another_models_layers_is_rejected():
    with pytest.raises(NotationError, match="at most 8 routes"):
        parse_mixture(" + ".join(f"[L{layer} RJ]" for layer in range(LAYERS)) + " - [L0 L0 RJ]", LAYERS)
    with pytest.raises(RouteError, match="applies layer 8, but the model's 8 layers are numbered 0 to 7"):
        parse_mixture("[L0 RJ] - [L0-L9 RJ]", LAYERS)


def test_a_use_that_takes_single_routes_says_what_takes_mixtures():
    mixture = mix((STANDARD, 1.5), (SKIP, -0.5))
    message = "a mixture of 2 routes, but --to x takes a single route; use y, or give one of them, such as 'L0 RJ'"
    with pytest.raises(RouteError, match=message):
        require_single_route(mixture, "--to x", "use y")
    assert require_single_route(mix((SKIP, 2.0)), "--to x") == SKIP
    with pytest.raises(
        RouteError, match="this subtracts one route, but --to x takes a single route; give 'L0-L3 L5 RJ'"
    ):
        require_single_route(mix((SKIP, -1.0)), "--to x")


def test_the_length_is_that_of_the_prefix_tree():
    mixture = mix((STANDARD, 1.0), (SKIP, -0.5), (REPEAT, 0.25))
    assert mixture.length == len(number_prefixes(mixture.routes))
    layers = 10_000
    long = mix((Route.standard(layers), 1.0), (Route.from_layers(range(1, layers), layers), -0.5))
    assert long.length == 2 * layers - 1  # in an instant: no prefix is hashed as a whole


def test_members_share_layers_up_to_their_first_difference():
    assert mix((STANDARD, 1.0), (SKIP, -0.5)).length == LAYERS + (SKIP.length - 4)
    assert mix((STANDARD, 1.0), (SKIP, 1.0), (REPEAT, 1.0)).length == LAYERS + 3 + 4


weights = st.floats(-100, 100).filter(lambda weight: abs(weight) > 1e-5)


@given(st.dictionaries(st.sampled_from([STANDARD, SKIP, REPEAT, ADD]), weights, min_size=1))
def test_the_text_is_read_back(members):
    mixture = mix(*members.items())
    assert parse_mixture(str(mixture), LAYERS) == mixture


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L0-L3 L5 RJ", ((SKIP, 1.0),)),
        ("[L0 RJ] - .5[L0-L3 L5 RJ]", ((STANDARD, 1.0), (SKIP, -0.5))),
        (" 2 * [L0 RJ]+ 1e-1 [L0-L4 L4 RJ] ", ((STANDARD, 2.0), (REPEAT, 0.1))),
    ],
)
def test_texts_written_by_hand(text, expected):
    assert parse_mixture(text, LAYERS) == mix(*expected)


@pytest.mark.parametrize(
    "text", ["[L0 RJ] 0.5 [L0-L3 L5 RJ]", "[L0 RJ] -", "x [L0 RJ]", "[L0 RJ", "[]", "1.2.3 [L0 RJ]"]
)
def test_what_is_not_a_mixture_is_explained(text):
    with pytest.raises((NotationError, RouteError)):
        parse_mixture(text, LAYERS)


@pytest.mark.parametrize(
    ("route", "weight", "words"),
    [
        (STANDARD, 0.0, "between 1e-06 and 1e\\+06 in size, not 0.0"),
        (STANDARD, float("nan"), "in size, not nan"),
        (STANDARD, float("inf"), "in size, not inf"),
        (STANDARD, 1e39, "in size, not 1e\\+39"),
        (STANDARD, 10**400, "in size"),
        (STANDARD, "1", "must be a number, not '1'"),
        (STANDARD, None, "must be a number"),
        ("L0 RJ", 1.0, "'L0 RJ' is not a Route"),
    ],
)
def test_bad_members_are_rejected(route, weight, words):
    with pytest.raises(RouteError, match=words):
        Member(route, weight)


def test_numpy_weights_are_plain_numbers():
    mixture = Mixture((Member(STANDARD, np.float32(1.5)), Member(SKIP, np.float64(-0.5))))
    assert parse_mixture(str(mixture), LAYERS) == mixture


def test_long_texts_take_no_time():
    start = time.perf_counter()
    for text in ("[L0 RJ]" + " " * 5000 + "x", " " * 5000 + "x [", "1" * 5000 + "[", "+ 1 [L0 RJ] " * 3000):
        with pytest.raises((NotationError, RouteError)):
            parse_mixture(text, LAYERS)
    assert time.perf_counter() - start < 2


# --- members without the question -----------------------------------------------------------------------------------


def test_a_member_may_be_asked_without_the_question():
    mixture = parse_mixture("2.5 [L0 RJ] - 1.5 [L0 RJ | No  question]", LAYERS)
    assert mixture.members == (Member(STANDARD, 2.5), Member(STANDARD, -1.5, with_question=False))
    assert str(mixture) == "2.5 [L0 RJ] - 1.5 [L0 RJ | no question]"
    assert parse_mixture(str(mixture), LAYERS) == mixture
    assert mixture != mix((STANDARD, 1.0))
    assert mixture.reference == 0
    assert mixture.compares_choices_only
    with pytest.raises(RouteError, match="each route once"):
        Mixture((Member(SKIP, 1.0, with_question=False), Member(SKIP, 2.0, with_question=False)))
    with pytest.raises(NotationError, match="'half of it' cannot be asked of a route"):
        parse_mixture("[L0 RJ | half of it]", LAYERS)


def test_alone_it_is_not_a_route():
    alone = Mixture.from_route(STANDARD, with_question=False)
    assert str(alone) == "1.0 [L0 RJ | no question]"
    assert parse_mixture(str(alone), LAYERS) == alone == to_simplest_form(alone)
    assert not alone.is_single
    assert not alone.is_standard
    with pytest.raises(RouteError, match="only compares choices by likelihood"):
        require_single_route(alone)


def test_it_shares_no_layer_with_what_reads_the_question():
    skip = Member(SKIP, -0.5, with_question=False)
    assert Mixture((Member(STANDARD), skip)).length == LAYERS + SKIP.length
    both = Mixture((Member(STANDARD), skip, Member(STANDARD, -0.2, with_question=False)))
    assert both.length == LAYERS + SKIP.length + LAYERS - 4


def test_sums_of_mixtures_keep_the_question():
    alone = Mixture.from_route(STANDARD, with_question=False)
    summed = Mixture.from_weights([(STANDARD, 1.0), (alone, -0.25), (Mixture((*alone.members, Member(SKIP))), -0.25)])
    assert {(member.notation, member.weight) for member in summed.members} == {
        ("L0 RJ", 4.0),
        ("L0 RJ | no question", -2.0),
        (str(SKIP), -1.0),
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixture([STANDARD]), "is not a Member; write Member"),
        (lambda: Mixture("L0 RJ"), "made of members"),
        (lambda: Mixture(3), "made of members"),
        (lambda: Mixture.from_weights([("L0 RJ", 1.0)]), "is not a Route or Mixture"),
        (lambda: Mixture.from_weights([(STANDARD, "1")]), "must be a finite number"),
        (lambda: Mixture.from_weights([(STANDARD, True)]), "must be a finite number"),
    ],
)
def test_other_types_are_rejected(make, message):
    with pytest.raises(RouteError, match=message):
        make()


def test_a_list_of_members_and_a_minus_sign_are_read():
    assert Mixture([Member(STANDARD, 2.0), Member(SKIP, -1.0)]).members[0].route == STANDARD
    assert parse_mixture("2 [L0 RJ] \u2212 1 [L0-L3 L5 RJ]", LAYERS) == parse_mixture(
        "2 [L0 RJ] - 1 [L0-L3 L5 RJ]", LAYERS
    )
