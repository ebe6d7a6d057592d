"""One route for several tasks, end to end on a tiny model."""

import pytest

from macro_routing.errors import SettingsError
from macro_routing.runs import RunFolder
from macro_routing.studies.one_route_for_all_tasks import run_one_route_for_all_tasks_study
from macro_routing.studies.settings import (
    OneRouteForAllTasksSettings,
)
from tests.studies.contexts import check_written_files, small_context


def test_one_route(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_one_route_for_all_tasks_study(context, OneRouteForAllTasksSettings(("small", "written"), 1, ("other",)))
    assert [(row["domain"], row["task"]) for row in found.table.rows] == [
        ("in domain", "small"),
        ("in domain", "written"),
        ("out of domain", "other"),
        ("in domain", "mean"),
        ("out of domain", "mean"),
    ]
    assert found.table.rows[4]["p"] is None  # one task's mean is that task
    inside = [row for row in found.table.rows if row["domain"] == "in domain"]
    assert inside[2]["accuracy"] == pytest.approx((inside[0]["accuracy"] + inside[1]["accuracy"]) / 2)
    check_written_files(context, found)
    again = run_one_route_for_all_tasks_study(
        small_context(tmp_path, frozen, minutes=0), OneRouteForAllTasksSettings(("small", "written"), 1, ("other",))
    )
    assert again.table.rows == found.table.rows
    with pytest.raises(SettingsError, match="at once"):
        run_one_route_for_all_tasks_study(context, OneRouteForAllTasksSettings(("small",), 1, ("small",)))


def test_a_pooled_search_goes_on_where_it_was(tmp_path, frozen):
    context = small_context(tmp_path, frozen)
    found = run_one_route_for_all_tasks_study(context, OneRouteForAllTasksSettings(("small", "written"), 1, ()))
    place = context.folder.path / "runs" / "pool-1"
    for name in ("manifest.json", "result.json", "candidates.json", "states/002.npz", "rounds/002.json"):
        (place / name).unlink()
    again = run_one_route_for_all_tasks_study(
        small_context(tmp_path, frozen), OneRouteForAllTasksSettings(("small", "written"), 1, ())
    )
    assert again.details["route"] == found.details["route"]
    assert RunFolder.open(place).is_finished
