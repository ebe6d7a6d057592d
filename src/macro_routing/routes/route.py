"""What a route is: the executed order of a model's layers (paper, section "Method"; specification §1).

A *program* is what a policy writes: steps, then usually ``RJ`` (rejoin). A *route* is what is executed:
the program with ``RJ`` replaced by the layers after the last one, to the end of the model. Probabilities belong to
programs; only routes are compared, hashed, scored, stored and exported.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise

from macro_routing.errors import RouteError, shorten_value

# Far beyond any model; they keep a hostile or mistyped text from filling the memory.
MAX_LAYERS = 10_000
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Add:
    """The earlier state added to a step's input: ``h_t + coefficient · h_{t-back}``."""

    back: int
    """How many steps older than the current state the added one is, from 1."""
    coefficient: float = 1.0
    """What it is multiplied with."""

    def __post_init__(self) -> None:
        """Reject adds without an effect."""
        if self.back < 1:
            raise RouteError(f"an add looks back at least 1 state, not {self.back}")
        if not math.isfinite(self.coefficient) or self.coefficient == 0:
            raise RouteError(f"an add's coefficient must be finite and not 0, not {self.coefficient}")


@dataclass(frozen=True, slots=True)
class Step:
    """One application of one layer, plain or after an add."""

    layer: int
    """Index of the layer, from 0."""
    add: Add | None = None
    """The state that is added first, if any."""

    def __str__(self) -> str:
        """The step in the paper's notation, such as ``L5(+h-4)``; a coefficient of size 1 is left out."""
        if self.add is None:
            return f"L{self.layer}"
        sign = "-" if self.add.coefficient < 0 else "+"
        size = abs(self.add.coefficient)
        # Decimal prints a float's shortest exact digits without an exponent, which the notation does not have.
        digits = "" if size == 1 else f"{Decimal(repr(float(size))).normalize():f}"
        return f"L{self.layer}({sign}{digits}h-{self.add.back})"


@dataclass(frozen=True, repr=False)
class Route:
    """The executed steps of a model with ``layers`` layers; equal when the execution is equal."""

    steps: tuple[Step, ...]
    """The steps in order."""
    layers: int
    """Number of layers of the model."""

    def __post_init__(self) -> None:
        """Reject steps the model cannot execute; the error names the step and the rule."""
        check_layer_count_in_range(self.layers)
        if not self.steps:
            raise RouteError("a route needs at least one step")
        if len(self.steps) > MAX_STEPS:
            raise RouteError(f"a route may have at most {MAX_STEPS} steps, this one has {len(self.steps)}")
        for done, step in enumerate(self.steps):
            if not 0 <= step.layer < self.layers:
                raise RouteError(
                    f"step {done + 1} applies layer {step.layer}, but the model's {self.layers} layers"
                    f" are numbered 0 to {self.layers - 1}"
                )
            # After `done` applications the states h_t … h_{t-done+1} exist; the embeddings are not among them.
            if step.add is not None and step.add.back > done - 1:
                raise RouteError(
                    f"step {done + 1} ({step}) looks back {step.add.back}, but after {done}"
                    f" {'application' if done == 1 else 'applications'} an add can look back at most {max(done - 1, 0)}"
                )

    def __hash__(self) -> int:
        """Computed once: routes are looked up far more often than made."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.steps, self.layers))

    @classmethod
    def standard(cls, layers: int) -> "Route":
        """The standard pass: every layer once, in order."""
        check_layer_count_in_range(layers)
        return cls.from_layers(range(layers), layers)

    @classmethod
    def from_layers(cls, order: Iterable[int], layers: int) -> "Route":
        """The route that applies the layers of ``order`` without adds."""
        return cls(tuple(Step(layer) for layer in order), layers)

    @classmethod
    def from_layer_counts(cls, counts: Sequence[int]) -> "Route":
        """The route that applies every layer in order, each as often in a row as its count says; 0 skips it."""
        return cls.from_layers((layer for layer, count in enumerate(counts) for _ in range(count)), len(counts))

    @property
    def applications_per_layer(self) -> tuple[int, ...]:
        """How often each layer of the model is applied."""
        counts = Counter(step.layer for step in self.steps)
        return tuple(counts[layer] for layer in range(self.layers))

    @property
    def length(self) -> int:
        """Layer applications, which is also the number of cache slots."""
        return len(self.steps)

    @cached_property
    def is_standard(self) -> bool:
        """Whether the execution is the standard pass."""
        return self.length == self.layers and all(
            step.layer == index and step.add is None for index, step in enumerate(self.steps)
        )

    @property
    def has_adds(self) -> bool:
        """Whether any step adds an earlier state."""
        return any(step.add is not None for step in self.steps)

    @property
    def reaches_last_layer(self) -> bool:
        """Whether the route runs through to the model's last layer."""
        return self.steps[-1].layer == self.layers - 1

    def program_with_earliest_rejoin(self) -> "Program":
        """The program whose ``RJ`` stands for the longest standard tail that leaves at least one step."""
        if not self.reaches_last_layer:
            return Program(self.steps, rejoin=False)
        kept = self.length
        while kept > 1 and is_next_layer(self.steps[kept - 2], self.steps[kept - 1]):
            kept -= 1
        return Program(self.steps[:kept], rejoin=True)

    def __len__(self) -> int:
        """The number of steps."""
        return len(self.steps)

    def __str__(self) -> str:
        """The route in the paper's notation; the standard pass is ``L0 RJ``."""
        return str(self.program_with_earliest_rejoin())

    def __repr__(self) -> str:
        """Short enough to be read in a list of routes."""
        return f"Route({str(self)!r}, layers={self.layers})"


@dataclass(frozen=True, slots=True, repr=False)
class Program:
    """What a policy writes: steps, and whether the layers after the last one follow to the end (``RJ``)."""

    steps: tuple[Step, ...]
    """The steps that were written."""
    rejoin: bool = True
    """Whether the layers after the last one follow, to the end of the model."""

    def __post_init__(self) -> None:
        """Reject an empty program: ``RJ`` continues after a layer, so there must be one."""
        if not self.steps:
            raise RouteError("a route needs at least one step")

    def to_route(self, layers: int) -> Route:
        """The route this program executes on a model with ``layers`` layers."""
        check_layer_count_in_range(layers)
        tail = range(self.steps[-1].layer + 1, layers) if self.rejoin else ()
        return Route(self.steps + tuple(Step(layer) for layer in tail), layers)

    def __str__(self) -> str:
        """The program in the paper's notation; plain ascending runs of three or more are written with a dash."""
        runs = split_into_ascending_runs(self.steps)
        words = [f"{run[0]}-{run[-1]}" if len(run) >= 3 else " ".join(map(str, run)) for run in runs]
        return " ".join([*words, "RJ"] if self.rejoin else words)

    def __repr__(self) -> str:
        """Short enough to be read in a list of programs."""
        return f"Program({str(self)!r})"


def split_into_ascending_runs(steps: Sequence[Step]) -> list[list[Step]]:
    """Steps cut into ascending plain runs; an add stands alone."""
    runs = [[steps[0]]]
    for before, step in pairwise(steps):
        if before.add is None and is_next_layer(before, step):
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def is_next_layer(before: Step, step: Step) -> bool:
    """Whether ``step`` is the ordinary next step: the next layer, nothing added."""
    return step.add is None and step.layer == before.layer + 1


def check_layer_count_in_range(layers: int) -> None:
    """Reject a number of layers that no model can have."""
    if not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise RouteError(f"a model has from 1 to {MAX_LAYERS} layers, not {shorten_value(layers)}")
