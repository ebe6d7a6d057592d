"""The paper's published routes: every written one is read, printed back, has its length and lies in its space."""

import json
from pathlib import Path

import pytest

from macro_routing.routes import RouteSpace, parse_program

_DATA = json.loads((Path(__file__).parents[1] / "data" / "published_routes.json").read_text())
WRITTEN = [row for row in [*_DATA["routes"], *_DATA["shared_routes"]] if row["route"]]
LONGEST = {"Qwen3-14B (4-bit)": 52, "Mixtral-8x7B (4-bit)": 44, "DeepSeek-R1-Distill-Llama-8B": 44}


def test_all_of_them_are_here():
    assert len(_DATA["routes"]) == 91
    assert len(WRITTEN) == 65


@pytest.mark.parametrize("row", WRITTEN, ids=lambda row: f"{row['model']}-{row['benchmark']}")
def test_published_route(row):
    program = parse_program(row["route"])
    assert str(program) == row["route"].replace("L10-L11", "L10 L11")
    route = program.to_route(row["layers"])
    assert route.length == row["executed"]
    coefficients = (1.0, -0.25) if "-0.25" in row["route"] else (1.0,)
    space = RouteSpace(row["layers"], max_length=LONGEST.get(row["model"], 40), coefficients=coefficients)
    assert space.program_from_actions(space.program_to_actions(program)) == program
    space.check_route(route)
