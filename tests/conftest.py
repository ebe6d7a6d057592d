"""Rules for the whole suite."""

import contextlib
import os
from pathlib import Path

import pytest

with contextlib.suppress(ImportError):  # the tests for a GPU do without it
    from hypothesis import settings

    # Other tests run beside these; how long one example takes says nothing then.
    settings.register_profile("side by side", deadline=None)
    settings.load_profile("side by side")

# One thread each: the tests run side by side, and threads that fight for the cores take ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a GPU its kernels are interpreted; triton wants to know before anything imports it.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):  # noqa: ARG001
    """Under CI nothing may be skipped for something missing, but a GPU."""
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and os.environ.get("CI") == "true" and item.get_closest_marker("gpu") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped under CI: {report.longrepr}"
    return report
