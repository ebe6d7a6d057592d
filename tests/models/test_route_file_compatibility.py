"""What is said about a route file's own evidence before its route is used."""

import pytest

from macro_routing.models.route_file_compatibility import describe_weak_evidence
from macro_routing.routes import RouteFile, parse_route


def route_file(p_value, difference, *, low=-0.02, objective="accuracy", **more):
    test = {"p_value": p_value, "difference": difference, "low": low}
    return RouteFile(
        parse_route("L0-L2 L2 RJ", 6), "m", "w", "n", "sciq", scores={"test": test, "verdict": "the verdict"},
        found_by={"decision": {"objective": objective, "margin": 3.0}}, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("file", "warning"),
    [
        (route_file(0.001, 0.05), None),
        (route_file(0.2, 0.05), "the verdict"),
        (route_file(0.001, -0.05), "the verdict"),
        (route_file(0.001, -0.05, recommended=False, recommendation="it is worse"), "not recommended: it is worse"),
        (route_file(0.4, -0.01, objective="speed"), None),
        (route_file(0.4, -0.01, low=-0.04, objective="speed"), "the verdict"),
        (RouteFile(parse_route("L0 RJ", 6), "m", "w", "n", "sciq"), None),
    ],
)
def test_weak_evidence_is_told(file, warning):
    told = describe_weak_evidence(file)
    assert (told is None) if warning is None else warning in told
