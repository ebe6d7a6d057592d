"""The cost study, end to end on a tiny model."""

import numpy as np

from macro_routing.report.formatting import format_points
from macro_routing.routes import Route
from macro_routing.studies.context import RouteWithSearchedTask
from macro_routing.studies.cost import run_route_cost_study
from macro_routing.studies.settings import (
    CostStudySettings,
)
from tests.studies.contexts import SMALL, check_written_files, small_context


def test_cost(tmp_path, frozen, subject):
    context = small_context(tmp_path, frozen)
    found = run_route_cost_study(context, subject, CostStudySettings(("small", "written"), items=6, repeats=2))
    assert [row["arm"] for row in found.table.rows] == ["standard", "route"] * 2
    assert all(row["item_seconds"] > 0 for row in found.table.rows)
    routed = found.table.rows[3]
    assert routed["lowest"] <= routed["overhead"] <= routed["highest"]
    assert routed["equal_seconds"] > 0
    by_task = [f"{row['task']} {format_points(row['overhead'])} %" for row in found.table.rows if row["arm"] == "route"]
    assert ", ".join(by_task) in found.headline  # no average over tasks in which a route writes more or less
    step = np.mean([found.table.rows[1]["equal_overhead"], routed["equal_overhead"]])
    assert f"{format_points(step)} % time per step" in found.headline
    check_written_files(context, found)


def test_the_standard_pass_takes_no_longer_than_itself(tmp_path, frozen):
    """It is measured once; the mean over benchmarks counts it."""
    context = small_context(tmp_path, frozen)
    subject = RouteWithSearchedTask(Route.standard(frozen.layers), SMALL, 1)
    found = run_route_cost_study(context, subject, CostStudySettings(("small",), items=6, repeats=1))
    assert found.table.rows[1]["equal_overhead"] == 0
