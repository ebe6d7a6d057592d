"""Which training examples each round of a sampling search is scored on (specification §3, "Data").

The examples come as disjoint chunks with a growing replay buffer.
"""

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.search.random_streams import RandomStream, make_generator


def assign_examples(size: int, iterations: int, replay: float, seed: int) -> list[tuple[int, ...]]:
    """The examples of every round: a chunk of its own and the buffer filled by earlier rounds (``S_i``)."""
    if size < iterations:
        raise SettingsError(
            f"iterations (I) = {iterations} is not allowed with {size} training examples:"
            " every round needs at least one example of its own"
        )
    rng = make_generator(seed, RandomStream.ASSIGN_EXAMPLES)
    buffer: list[int] = []
    rounds = []
    for chunk in np.array_split(rng.permutation(size), iterations):
        rounds.append((*chunk.tolist(), *buffer))
        if replay > 0:
            kept = rng.choice(chunk, size=max(1, round(replay * len(chunk))), replace=False)
            buffer += kept.tolist()
    return rounds


def sample_examples(available: int, wanted: int, seed: int) -> tuple[int, ...]:
    """The first ``wanted`` examples of the seed's order, so a larger budget sees the same ones and more."""
    order = make_generator(seed, RandomStream.SAMPLE_EXAMPLES).permutation(available)
    return tuple(order[:wanted].tolist())
