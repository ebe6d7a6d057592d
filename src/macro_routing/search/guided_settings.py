"""The settings of the guided search, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

from macro_routing.search.policy import check_epsilons
from macro_routing.search.route_model import MODELS
from macro_routing.settings import check_choice, check_integer, check_number


@dataclass(frozen=True)
class GuidedSettings:
    """The settings of the guided search."""

    rounds: int = 10
    """Rounds, each with its own share of the training examples."""
    draws: int = 70
    """Different routes per round, the standard pass among them; more where the budget pays for it."""
    held_back: float = 0.5
    """Share of the training examples that are kept for the confirmation."""
    finalists: int = 4
    """Routes of which the model expects most that meet the standard pass there."""
    by_own_scores: int = 3
    """Routes that are scored again in every round because of their own scores alone, whatever the model thinks of them;
    the best of these is a finalist, too. The model expects no lonely peaks."""
    doubt: float = 0.1
    """A finalist is chosen when, by all that is known, it is no better than the standard pass with at most this
    probability."""
    epsilon_local: float = 0.06
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: float = 0.02
    """Prior mass spread over all adds (``ε_op``)."""
    pool: int = 150
    """Programs drawn from the policy per round, for the model to choose from; with 0 it is not decoded either."""
    incumbents: int = 8
    """Best routes whose edits the model may choose in every round."""
    model: str = "both"
    """What routes tell about each other: ``layers`` what each layer brings, ``whole`` what like routes do, ``both``,
    or each route ``alone``."""
    sharpness: float = 0.02
    """A route expected to be worse than the best by this much weighs e times less in the policy."""
    trust: float = 3.0
    """Weight of all routes together in the policy, where the prior weighs 1."""

    def __post_init__(self) -> None:
        """Refuse impossible settings by name."""
        check_integer("rounds", self.rounds, minimum=1)
        check_integer("draws", self.draws, minimum=3)
        check_integer("finalists", self.finalists, minimum=1, maximum=100)
        check_integer("by_own_scores", self.by_own_scores, minimum=0, maximum=100)
        check_integer("pool", self.pool, minimum=0, maximum=100_000)
        check_integer("incumbents", self.incumbents, minimum=0, maximum=1000)
        check_choice("model", self.model, tuple(MODELS))
        check_number("held_back", self.held_back, minimum=0, maximum=0.9)
        check_number("doubt", self.doubt, minimum=0, maximum=1, exclusive=True)
        check_number("sharpness", self.sharpness, minimum=0, exclusive=True)
        check_number("trust", self.trust, minimum=0)
        check_epsilons(self.epsilon_local, self.epsilon_operator)

    @property
    def k(self) -> int:
        """Size of the final set: the standard pass and the finalists."""
        return 1 + self.finalists + bool(self.by_own_scores)

    def cost(self, examples: int) -> int:
        """Outcomes that a search over so many examples asks for at least."""
        held = int(self.held_back * examples)
        return self.draws * (examples - held) + self.k * held
