"""Rules for the whole suite."""

import os

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):  # noqa: ARG001
    """Under CI nothing may be skipped for something missing, but a GPU."""
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and os.environ.get("CI") == "true" and item.get_closest_marker("gpu") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped under CI: {report.longrepr}"
    return report
