"""Random streams: every random choice of a search comes from a generator named by (seed, purpose, number).

Streams are named instead of being carried along, so no random state has to be saved to continue a search.
"""

from enum import IntEnum

import numpy as np

from macro_routing.settings import check_integer


class RandomStream(IntEnum):
    """The purpose of a random stream. Equal numbers belong to different searches; results depend on every number."""

    ASSIGN_EXAMPLES = 0
    SAMPLE_PROGRAMS = 1
    SAMPLE_EXAMPLES = 2
    RESTART_SEEDS = 3
    SURROGATE_VECTORS = 3
    SURROGATE_FIT = 4
    GUIDED_EXAMPLES = 4
    GUIDED_CHOICE = 5
    TREE_GROWTH = 5


def make_generator(seed: int, stream: RandomStream, *numbers: int) -> np.random.Generator:
    """The generator of a stream; ``numbers`` are such as the round or the example."""
    return np.random.default_rng([seed, int(stream), *numbers])


def check_seed(seed: int) -> None:
    """Reject seeds that do not fit one word of a stream's name, where two streams could become one."""
    check_integer("seed", seed, minimum=0, maximum=2**32 - 1)
