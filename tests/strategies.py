"""Random routes, spaces and policies for hypothesis."""

import numpy as np
from hypothesis import strategies as st

from macro_routing.routes import Add, Program, RouteSpace, Step
from macro_routing.search import MarkovPolicy

coefficients = st.one_of(
    st.sampled_from([1.0, -1.0, -0.25, 0.5, 2.0]),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: value != 0),
)


@st.composite
def programs(draw, layers=12, longest=12):
    """Any program that can be executed on ``layers`` layers, inside MACRO's space or not."""
    steps = []
    for done in range(draw(st.integers(1, longest))):
        layer = draw(st.integers(0, layers - 1))
        add = None
        if done >= 2 and draw(st.booleans()):
            add = Add(draw(st.integers(1, done - 1)), draw(coefficients))
        steps.append(Step(layer, add))
    return Program(tuple(steps), rejoin=draw(st.booleans()))


@st.composite
def small_spaces(draw):
    """Spaces small enough to enumerate, every factor on or off, with and without adds."""
    layers = draw(st.integers(1, 4))
    switches = {name: draw(st.booleans()) for name in ("phase", "displacement", "operator", "previous_layer")}
    return RouteSpace(
        layers,
        max_length=layers + draw(st.integers(0, 2)),
        radius=draw(st.integers(1, 2)),
        window=draw(st.integers(0, 2)),
        coefficients=draw(st.sampled_from([(1.0,), (1.0, -0.25)])),
        **switches,
    )


@st.composite
def policies(draw, spaces):
    """Policies with random rows; few distinct weights make ties and zeros common."""
    space = draw(spaces)
    kind = draw(st.sampled_from(["prior", "uniform", "few weights", "halves", "continuous"]))
    if kind == "prior":
        return MarkovPolicy.make_prior(space)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if kind == "uniform":
        table = np.ones(space.table_shape)
    elif kind == "few weights":
        table = rng.choice([0.0, 1.0, 1.0, 2.0, 4.0], size=space.table_shape)
    elif kind == "halves":
        table = 0.5 ** rng.integers(0, 6, size=space.table_shape)
    else:
        table = rng.random(space.table_shape)
    table[table.sum(axis=-1) == 0] = 1.0
    return MarkovPolicy(space, table / table.sum(axis=-1, keepdims=True))
