"""Random streams: every random choice of a search comes from a generator named by (seed, purpose, number).

Streams are named instead of being carried along, so no random state has to be saved to continue a search. The training
examples of every round are assigned here, too (specification §3, "Data").
"""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from macro_routing.errors import SettingsError


class RandomStreamPurpose(IntEnum):
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
    GUIDED_MEMBERS = 6


def make_generator(seed: int, stream: RandomStreamPurpose, *numbers: int) -> np.random.Generator:
    """The generator of a stream; ``numbers`` are such as the round or the example."""
    return np.random.default_rng([seed, int(stream), *numbers])


def assign_examples_to_rounds(size: int, iterations: int, replay: float, seed: int) -> list[tuple[int, ...]]:
    """The examples of every round: a chunk of its own and the replay buffer filled by earlier rounds (``S_i``)."""
    if size < iterations:
        raise SettingsError(
            f"iterations (I) = {iterations} is not allowed with {size} training examples:"
            " every round needs at least one example of its own"
        )
    rng = make_generator(seed, RandomStreamPurpose.ASSIGN_EXAMPLES)
    buffer: list[int] = []
    rounds = []
    for chunk in np.array_split(rng.permutation(size), iterations):
        rounds.append((*chunk.tolist(), *buffer))
        if replay > 0:
            buffer += rng.choice(chunk, size=max(1, round(replay * len(chunk))), replace=False).tolist()
    return rounds


def sample_examples(available: int, wanted: int, seed: int) -> tuple[int, ...]:
    """The first ``wanted`` examples of the seed's order, so a larger budget sees the same ones and more."""
    order = make_generator(seed, RandomStreamPurpose.SAMPLE_EXAMPLES).permutation(available)
    return tuple(order[:wanted].tolist())


def permute_groups(groups: Sequence[int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of all elements: groups in random order, each in one piece."""
    members = [np.flatnonzero(np.array(groups) == group) for group in np.unique(groups)]
    return np.concatenate([members[index] for index in rng.permutation(len(members))])
