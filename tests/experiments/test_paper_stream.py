"""Published routes in the draws of the paper's seeds."""

from experiments.paper_stream import SEEDS, count_contained, make_verbatim_rows, read_published_routes


def test_most_published_routes_are_made_of_first_draws():
    routes = read_published_routes()
    assert len(routes) == 54
    contained = [count_contained(routes, SEEDS, least, draws_at_last_layer=False) for least in (1, 2, 3)]
    assert contained == [35, 14, 6]
    by_chance = count_contained(routes, (1000, 1001, 1002), 2, draws_at_last_layer=False)
    assert by_chance < 7


def test_some_are_drawn_verbatim():
    rows = make_verbatim_rows(read_published_routes())
    assert {(row["seed"], row["draw"]) for row in rows} == {(2, 7), (1, 27), (42, 14), (42, 5), (42, 17)}
