"""What found routes are made of, end to end on a tiny model."""

import numpy as np
import pytest

from macro_routing.errors import RunError
from macro_routing.routes import parse_route
from macro_routing.studies.composition import (
    FoundRoute,
    find_finished_runs,
    run_route_composition_study,
    tabulate_route_shares_by_layer_and_count,
)
from tests.studies.contexts import SMALL, check_written_files, small_context


def test_composition(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    for seed in (1, 2, 3):
        context.load_or_search(f"small-{seed}", context.make_run_config(SMALL, seed))
    found = find_finished_runs([context.folder.path], "macro")
    assert len(found) == 3
    study = run_route_composition_study(found)
    (row,) = study.table.rows
    routes = [one.route for one in found]
    assert row["adds"] == pytest.approx(np.mean([route.has_adds for route in routes]))
    assert row["length_change"] == pytest.approx(np.mean([route.length for route in routes]) / frozen.layers - 1)
    shares = np.array(tabulate_route_shares_by_layer_and_count(routes))
    assert shares.sum(axis=0) == pytest.approx(np.ones(frozen.layers))  # every layer is applied some number of times
    check_written_files(context, study)
    with pytest.raises(RunError, match="holds no finished run"):
        find_finished_runs([tmp_path / "nowhere"], None)
    with pytest.raises(RunError, match="none of the 3 runs"):
        find_finished_runs([context.folder.path], "rys")


def test_composition_counts_a_search_once_and_settings_apart(tmp_path, frozen):
    first, second = small_context(tmp_path / "a", frozen), small_context(tmp_path / "b", frozen)
    for context in (first, second):
        context.load_or_search("small", context.make_run_config(SMALL, 1))
    second.load_or_search("other", second.make_run_config(SMALL, 1, space={"phase": False}))
    found = find_finished_runs([first.folder.path, second.folder.path], "macro")
    assert len(found) == 2
    study = run_route_composition_study(found)
    assert [(row["settings"], row["runs"]) for row in study.table.rows] == [("", 1), ("phase = False", 1)]
    assert "phase = True" in study.table.notes[0]  # what stands behind the line that names nothing
    assert len({figure.name for figure in study.figures}) == 2
    # What a search was tested on, and how long answers may be that nobody writes, make no other search of it.
    third = small_context(tmp_path / "c", frozen)
    changes = {"data": {"test": 10}, "decoding": {"mode": "likelihood", "answer_budget": 9}}
    third.load_or_search("small", third.make_run_config(SMALL, 1, **changes))
    assert len(find_finished_runs([first.folder.path, third.folder.path], "macro")) == 1
    # Pictures of kinds of searches that are no longer there go with them.
    check_written_files(second, study)
    assert len(list(second.folder.path.glob("layers_*.svg"))) == 1
    check_written_files(second, run_route_composition_study(found[:1]))
    assert not list(second.folder.path.glob("layers_*.svg"))


def test_composition_keeps_depths_apart():
    routes = [FoundRoute("m", "MACRO", "r", parse_route("L0 RJ", layers), 1) for layers in (6, 8, 8)]
    study = run_route_composition_study(routes)
    assert [(row["layers"], row["runs"]) for row in study.table.rows] == [(8, 2), (6, 1)]
    assert len({figure.name for figure in study.figures}) == 2


def test_composition_counts_what_the_paper_counts():
    texts = ["L0 RJ", "L0-L2 L1-L3 RJ", "L0-L3 L4(+h-2) RJ", "L0-L3 L2(+h-1) RJ"]
    routes = [FoundRoute("m", "MACRO", str(place), parse_route(text, 6), place + 1) for place, text in enumerate(texts)]
    (row,) = run_route_composition_study(routes).table.rows
    assert (row["adds"], row["moves"], row["both"], row["rank"]) == (0.5, 0.5, 0.25, 2.5)
    assert row["length_change"] == pytest.approx((6 + 8 + 6 + 8) / 4 / 6 - 1)
