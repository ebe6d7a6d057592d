"""What the tests of all studies share: a tiny model, and a route on it."""

import pytest

from macro_routing.routes import parse_route
from macro_routing.studies.context import RouteWithSearchedTask
from tests.runs.small import small_frozen
from tests.studies.contexts import SMALL

ROUTE = "L0-L2 L1-L3 L4(+h-2) RJ"


@pytest.fixture(scope="session")
def frozen():
    return small_frozen()


@pytest.fixture
def subject(frozen):
    return RouteWithSearchedTask(parse_route(ROUTE, frozen.layers), SMALL, 1)
