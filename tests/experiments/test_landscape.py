import numpy as np
import pytest

from experiments.landscape import Landscape, record, routes_to_record
from macro_routing.errors import SettingsError
from macro_routing.routes import Route, RouteSpace

SPACE = RouteSpace(6)


def made(examples=21):
    routes = routes_to_record(SPACE, 10, seed=1)
    rng = np.random.default_rng(0)
    rows = {route: rng.random(examples) < 0.5 for route in routes}
    return record(routes, lambda some: {route: rows[route].tolist() for route in some}, {"task": "tätig"}), rows


def test_the_table_holds_all_single_moves_and_blocks_and_the_wanted_pairs():
    routes = routes_to_record(SPACE, 10, seed=1)
    assert routes[0].is_standard
    assert len(set(routes)) == len(routes)
    assert routes == routes_to_record(SPACE, 10, seed=1)
    assert len(routes_to_record(SPACE, 0, seed=1)) == len(routes) - 10
    for i in range(6):
        for j in range(i + 1, 7):
            repeated = [*range(j), *range(i, 6)]
            assert any([step.layer for step in route.steps] == repeated for route in routes if not route.has_adds)


def test_written_and_read_it_is_the_same(tmp_path):
    landscape, rows = made()
    path = tmp_path / "table.json"
    path.write_text(landscape.to_json(), encoding="utf-8")
    again = Landscape.load(path)
    assert again.routes == landscape.routes
    assert (again.right == landscape.right).all()
    assert again.about["task"] == "tätig"
    for route, row in rows.items():
        assert (again.verdicts(route) == row).all()
        assert again.gain(route) == pytest.approx(row.mean() - rows[Route.standard(6)].mean())
    assert Route.standard(6) in again
    assert Route.standard(7) not in again


@pytest.mark.parametrize("text", ["", "{}", '{"format": 3}', "[]", '{"layers": 2, "examples": 1, "routes": {}}'])
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "table.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match="record"):
        Landscape.load(path)


def test_a_table_without_the_standard_pass_is_refused():
    landscape, _ = made()
    with pytest.raises(SettingsError, match="standard pass"):
        Landscape(landscape.routes[1:], landscape.right[1:])
