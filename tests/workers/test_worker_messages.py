"""Messages between driver and workers."""

import json

import pytest

from macro_routing.errors import MacroError
from macro_routing.models.load_options import LoadOptions
from macro_routing.workers.worker import start_worker
from macro_routing.workers.worker_messages import WorkerSetup, WorkerTaskSource

SETUP = WorkerSetup("small", LoadOptions(), (WorkerTaskSource("category", seed=3),))


def test_a_setup_survives_the_wire():
    assert WorkerSetup.from_json(SETUP.to_json()) == SETUP


@pytest.mark.parametrize("other", [None, 1, 3])
def test_a_driver_of_another_version_is_named(other):
    values = {**json.loads(SETUP.to_json()), "format": other}
    message = f"messages of format {other}, this worker reads format 2; install the same version"
    with pytest.raises(MacroError, match=message):
        WorkerSetup.from_json(json.dumps(values))
    worker, first = start_worker(json.dumps(values))
    assert worker is None
    assert "install the same version" in json.loads(first)["error"]
