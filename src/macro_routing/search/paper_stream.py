"""Random numbers as the paper's searches probably used them, inferred from the routes that it publishes.

One generator, numpy's ``default_rng(seed)``, serves all rounds. Every step takes one uniform number, except at the last
layer, where nothing is left to choose. Feasible actions are ordered: rejoin, moves by displacement, adds by how far
they look back and then by displacement. See docs/results/paper_stream.md.
"""

import functools
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from macro_routing.routes.route import Program
from macro_routing.routes.space import RouteSpace
from macro_routing.search.policy import MarkovPolicy


def get_paper_max_length(layers: int) -> int:
    """The longest route of the paper's models of this depth: 40 for 36 layers, else twelve more than the layers."""
    return 40 if layers == 36 else layers + 12


@functools.cache
def list_actions_in_paper_order(space: RouteSpace) -> tuple[int, ...]:
    """All actions: rejoin, moves, adds by (b, Δ)."""
    others = [action for action in range(space.action_count) if action != space.rejoin_action]

    def sort_key(action: int) -> tuple[int, float, int]:
        displacement, add = space.action_displacements_and_adds[action]
        return (0, 0.0, displacement) if add is None else (add.back, add.coefficient, displacement)

    return (space.rejoin_action, *sorted(others, key=sort_key))


def make_paper_generator(seed: int, numbers_drawn: int = 0) -> np.random.Generator:
    """``default_rng(seed)`` after so many uniform numbers."""
    bits = np.random.PCG64(seed)
    bits.advance(numbers_drawn)
    return np.random.Generator(bits)


def count_random_numbers(space: RouteSpace, programs: Iterable[Program]) -> int:
    """Uniform numbers that drawing these programs took."""
    last = space.layers - 1
    return sum(
        position.layer != last
        for program in programs
        for position, _ in space.list_program_actions_with_positions(program)
    )


def sample_paper_program(policy: MarkovPolicy, rng: np.random.Generator, temperature: float = 1.0) -> Program:
    """Draw one program as the authors did."""
    space, order = policy.space, np.array(list_actions_in_paper_order(policy.space))
    actions: list[int] = []
    position = space.initial_position
    while position.layer != space.layers - 1:
        row = policy.masked_log_row(position)[order] / temperature
        feasible = order[np.isfinite(row)]
        cumulative = np.exp(row[np.isfinite(row)] - row.max()).cumsum()
        action = int(feasible[np.searchsorted(cumulative / cumulative[-1], rng.random(), side="right")])
        if action == space.rejoin_action:
            break
        actions.append(action)
        position = space.position_after_action(position, action)
    return space.program_from_actions(actions)


def draw_first_programs(space: RouteSpace, seed: int, count: int) -> list[Program]:
    """The first ``count`` programs of the paper's search with this seed."""
    return list(islice(iterate_programs(space, seed), count))


def iterate_programs(space: RouteSpace, seed: int) -> Iterator[Program]:
    """The programs of the paper's search with this seed while its policy is the prior, one after the other."""
    prior, rng = MarkovPolicy.make_prior(space), make_paper_generator(seed)
    while True:
        yield sample_paper_program(prior, rng)
