"""What searches share that deal their training examples out over rounds of draws."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from macro_routing.search.example_schedule import MAX_EXAMPLES, assign_examples, check_seed
from macro_routing.settings import check_integer


class DealtSettings(Protocol):
    """What these searches are told about their rounds."""

    @property
    def iterations(self) -> int:
        """How many."""
        ...

    @property
    def draws(self) -> int:
        """Proposals of each."""
        ...

    @property
    def replay(self) -> float:
        """Share of its examples that later ones see again."""
        ...

    @property
    def k(self) -> int:
        """Size of the final set."""
        ...


class DealtRounds:
    """Rounds known beforehand; a subclass is a dataclass with these fields."""

    examples: int
    settings: DealtSettings
    seed: int

    def __post_init__(self) -> None:
        """Refuse bad seeds, and too few examples before anything is scored."""
        check_seed(self.seed)
        check_integer("examples", self.examples, minimum=1, maximum=MAX_EXAMPLES)
        _ = self.schedule

    @cached_property
    def schedule(self) -> list[tuple[int, ...]]:
        """The training examples of every round."""
        return assign_examples(self.examples, self.settings.iterations, self.settings.replay, self.seed)

    @property
    def max_rounds(self) -> int:
        """Most rounds there can be."""
        return self.settings.iterations

    @property
    def max_draws(self) -> int:
        """Most proposals of a round."""
        return self.settings.draws

    @property
    def max_candidates(self) -> int:
        """Most routes to be validated."""
        return self.settings.k

    def max_evaluations(self, done: int = 0) -> int:
        """Outcomes that the rounds from ``done`` on may ask for."""
        return self.settings.draws * sum(len(examples) for examples in self.schedule[done:])
