"""The real model of the suite, fetched once per machine."""

import pytest
import torch

from macro_routing.models import load_model


@pytest.fixture(scope="session", autouse=True)
def _two_threads():
    torch.set_num_threads(1)  # the suite runs one process per core


@pytest.fixture(scope="session")
def smollm2():
    return load_model("smollm2-135m")
