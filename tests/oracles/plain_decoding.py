"""Plain, slow, obvious versions of the policy's rows and of top-k decoding: the oracle for the fast ones.

Written from the specification alone: nothing of ``macro_routing.search`` is used, only the table's own numbers.
"""

import math
from functools import cache

TIE = 1e-9


def state(space, n, layer, previous, added):
    left = (space.max_length - n) / space.max_length
    phase = 0 if left > 2 / 3 + 1e-12 else 1 if left > 1 / 3 + 1e-12 else 2
    knows_previous = space.displacement or space.previous_layer
    delta = 2 * space.radius + 1 if previous is None else layer - previous + space.radius
    return (
        layer,
        phase if space.phase else 0,
        delta if knows_previous else 0,
        int(added) if space.operator else 0,
    )


def actions(space):
    moves = [("move", delta) for delta in range(-space.radius, space.radius + 1)]
    adds = [
        ("add", back, coefficient, delta)
        for back in range(1, space.window + 1)
        for coefficient in sorted(space.coefficients)
        for delta in range(-space.radius, space.radius + 1)
    ]
    return [*moves, ("rejoin",), *adds]


def feasible(space, n, layer, action):
    if action[0] == "rejoin":
        return True
    target = layer + action[-1]
    in_range = 0 <= target < space.layers
    fits = n + 1 + (space.layers - 1 - target) <= space.max_length
    in_history = action[0] == "move" or action[1] <= n - 1
    return in_range and fits and in_history


def row(policy, n, layer, previous, added):
    """[(action number, action, probability)] of the feasible actions with a positive probability."""
    space = policy.space
    stored = policy.table[state(space, n, layer, previous, added)]
    options = [
        (number, action, float(stored[number]))
        for number, action in enumerate(actions(space))
        if feasible(space, n, layer, action)
    ]
    total = sum(probability for _, _, probability in options)
    if total == 0:
        return [(number, action, 1.0) for number, action, _ in options if action[0] == "rejoin"]
    return [(number, action, probability / total) for number, action, probability in options if probability > 0]


def enumerate_programs(policy):
    """Every program as (log-probability, executed length, action numbers), by plain recursion."""
    space = policy.space

    def walk(n, layer, previous, added, log_probability, written):
        for number, action, probability in row(policy, n, layer, previous, added):
            value = log_probability + math.log(probability)
            if action[0] == "rejoin":
                yield value, n + space.layers - 1 - layer, (*written, number)
            else:
                yield from walk(n + 1, layer + action[-1], layer, action[0] == "add", value, (*written, number))

    return list(walk(1, 0, None, False, 0.0, ()))


def in_order(programs):
    """Most probable first; those within 1e-9 of the best of their group by executed length, then action numbers."""
    ordered, group = [], []
    for program in sorted(programs, key=lambda entry: -entry[0]):
        if group and group[0][0] - program[0] > TIE:
            ordered += sorted(group, key=lambda entry: entry[1:])
            group = []
        group.append(program)
    return ordered + sorted(group, key=lambda entry: entry[1:])


def recursive_top_k(policy, k):
    """The textbook recursion with memory: the k best completions of every position, merged from its actions'.

    Feasible where enumeration is not; the benchmark's opponent.
    """
    space = policy.space

    @cache
    def best(n, layer, previous, added):
        found = []
        for number, action, probability in row(policy, n, layer, previous, added):
            cost = math.log(probability)
            if action[0] == "rejoin":
                found.append((cost, space.layers - 1 - layer, (number,)))
            else:
                for value, length, written in best(n + 1, layer + action[-1], layer, action[0] == "add"):
                    found.append((cost + value, length + 1, (number, *written)))
        return in_order(found)[:k]

    return best(1, 0, None, False)
