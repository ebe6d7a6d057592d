"""Published routes in the draws of the paper's seeds."""

import pytest

from experiments.paper_stream import (
    BEST,
    DRAWS,
    READINGS,
    SEEDS,
    count_contained,
    draw_programs,
    make_longest_rows,
    make_verbatim_rows,
    read_published_routes,
    summarize_verbatim_controls,
)
from macro_routing.routes.space import RouteSpace
from macro_routing.search.paper_stream import draw_first_programs, get_paper_max_length


def test_most_published_routes_are_made_of_first_draws():
    routes = read_published_routes()
    assert len(routes) == 54
    contained = [count_contained(routes, SEEDS, least, "no") for least in (1, 2, 3)]
    assert contained == [35, 14, 6]
    by_chance = count_contained(routes, (1000, 1001, 1002), 2, "no")
    assert by_chance < 7


def test_some_are_drawn_verbatim():
    rows = make_verbatim_rows(read_published_routes())
    assert {(row["seed"], row["draw"]) for row in rows} == {(2, 7), (1, 27), (42, 14), (42, 5), (42, 17)}


def test_the_longest_routes_are_the_papers():
    assert {layers: get_paper_max_length(layers) for layers in (28, 32, 36, 40)} == {28: 40, 32: 44, 36: 40, 40: 52}


def test_control_seeds_draw_fewer_verbatim():
    summary = summarize_verbatim_controls(read_published_routes(), 4)
    assert summary["n"] == 4
    assert summary["all"]["own"] == 6
    assert summary["all"]["mean"] < 6
    assert summary["with_add"]["own"] == 2


@pytest.mark.parametrize("layers", [28, 36])
def test_draws_are_those_of_the_search(layers):
    space = RouteSpace(layers, max_length=get_paper_max_length(layers))
    assert draw_programs(layers, 42, "no") == tuple(map(str, draw_first_programs(space, 42, DRAWS)))


def test_readings_part_where_one_draws_a_number_more():
    always, long, short, _ = (draw_programs(36, 42, reading) for reading in list(READINGS)[1:])
    never = draw_programs(36, 42, "no")
    # The first program that ends at the last layer has 38 steps, the third one 40, which are allowed.
    assert never[:3] == long[:3]
    assert never[3] != long[3]
    assert never[1] != always[1]
    assert always[1] == short[1]
    routes = [route for route in read_published_routes() if route.layers == 36]
    assert count_contained(routes, SEEDS, 1, BEST) == max(count_contained(routes, SEEDS, 1, name) for name in READINGS)


def test_only_the_papers_longest_route_contains_the_route_of_three_deviations():
    rows = {row["longest"]: row for row in make_longest_rows(read_published_routes(), 1)}
    assert [longest for longest, row in rows.items() if row["3"]] == [get_paper_max_length(36)]
    routes = [route for route in read_published_routes() if route.layers == 36]
    assert rows[40]["1"] == count_contained(routes, SEEDS, 1, "no")
