"""What each round of a drawing search sees: its training examples and its draws, each from a random stream of its own.

The examples come as disjoint chunks with a growing replay buffer (specification §3, "Data"). Streams are named by
(seed, purpose, round) instead of being carried along, so no random state has to be saved to continue a search.
"""

from __future__ import annotations

import numpy as np

from macro_routing.errors import SettingsError
from macro_routing.search.policy import MarkovPolicy
from macro_routing.search.searcher import Proposal
from macro_routing.settings import check_integer

_DEALING, _DRAWING = 0, 1
MAX_EXAMPLES = 10_000_000


def check_seed(seed: int) -> None:
    """Refuse seeds that do not fit one word of a stream's name, where two streams could become one."""
    check_integer("seed", seed, minimum=0, maximum=2**32 - 1)


def assign_examples(size: int, iterations: int, replay: float, seed: int) -> list[tuple[int, ...]]:
    """The examples of every round: ``S_i = D_i`` and the buffer filled by the rounds before."""
    if size < iterations:
        raise SettingsError(
            f"iterations (I) = {iterations} is not allowed with {size} training examples:"
            " every round needs at least one example of its own"
        )
    rng = np.random.default_rng([seed, _DEALING])
    buffer: list[int] = []
    rounds = []
    for chunk in np.array_split(rng.permutation(size), iterations):
        rounds.append((*chunk.tolist(), *buffer))
        if replay > 0:
            kept = rng.choice(chunk, size=max(1, round(replay * len(chunk))), replace=False)
            buffer += kept.tolist()
    return rounds


def sample_proposals(
    policy: MarkovPolicy, draws: int, *, seed: int, round_number: int, temperature: float = 1.0
) -> tuple[Proposal, ...]:
    """The programs of one round, the same ones whenever it is asked for."""
    rng = np.random.default_rng([seed, _DRAWING, round_number])
    programs = (policy.sample_program(rng, temperature) for _ in range(draws))
    return tuple(Proposal(program.expand(policy.space.layers), program) for program in programs)
