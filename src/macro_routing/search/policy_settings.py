"""The settings of the searches that sample programs from a policy: MACRO and random search."""

from dataclasses import dataclass
from typing import Annotated

from macro_routing.errors import SettingsError
from macro_routing.search.fixed_route_count_settings import FixedRouteCountSettings
from macro_routing.settings import AllowedRange, CheckedSettings, check_choice, check_number, option

PAPER_STREAM = "paper"
PER_ROUND_STREAM = "per-round"
STREAMS = (PER_ROUND_STREAM, PAPER_STREAM)
MAX_CANDIDATES = 10_000
FINAL_SETS = ("distinct", "raw", "anchored", "marginal")


def check_epsilons(epsilon_local: float, epsilon_operator: float) -> None:
    """Reject exploration masses that are not probabilities."""
    check_number("epsilon_local (ε_loc)", epsilon_local, minimum=0, maximum=1)
    check_number("epsilon_operator (ε_op)", epsilon_operator, minimum=0, maximum=1)
    if epsilon_local + epsilon_operator > 1:
        raise SettingsError(
            f"epsilon_local + epsilon_operator = {epsilon_local + epsilon_operator:g} is not allowed:"
            " the two exploration masses must sum to at most 1"
        )


@dataclass(frozen=True)
class PolicySamplingSettings(CheckedSettings):
    """The settings of every search whose rounds are samples of a policy on chunks of the training examples."""

    iterations: Annotated[int, AllowedRange(1, symbol="I")] = option(
        10, "Rounds (I).", "Search", shown_default="the preset's"
    )
    """Rounds of drawing and updating (``I``)."""
    draws: Annotated[int, AllowedRange(1, symbol="K")] = option(
        30,
        "Routes per round (K); the guided search takes more if the budget pays for them, unless only --draws is given.",
        "Search",
        shown_default="the preset's",
    )
    """Programs drawn per round (``K``)."""
    stream: str = PER_ROUND_STREAM
    """Random numbers of the draws: ``per-round``, a generator for every round; ``paper``, the one generator of the
    authors' searches."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_choice("stream", self.stream, STREAMS)


@dataclass(frozen=True)
class MacroSettings(PolicySamplingSettings):
    """The settings of MACRO's search; the defaults are the paper's, but for the final set."""

    elite: Annotated[int, AllowedRange(1, symbol="m")] = option(
        5, "Best draws that update the policy (m); not in the guided search.", "Search", shown_default="the preset's"
    )
    """How many of the best draws move the policy (``m``); equal to ``draws`` means all."""
    beta: Annotated[float, AllowedRange(0, symbol="β")] = 1.8262
    """How sharply better draws outweigh worse ones within the elite (``β``)."""
    alpha: Annotated[float, AllowedRange(0, symbol="α")] = 0.0397
    """Weight of the current policy in the new one, as a pseudo-count (``α``)."""
    temperature: Annotated[float, AllowedRange(0.001, symbol="τ")] = 1.0
    """Sampling temperature (``τ``); decoding always uses 1."""
    epsilon_local: Annotated[float, AllowedRange(0, 1, symbol="ε_loc")] = 0.2
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: Annotated[float, AllowedRange(0, 1, symbol="ε_op")] = 0.0867
    """Prior mass spread over all adds (``ε_op``)."""
    replay: Annotated[float, AllowedRange(0, 1, symbol="λ")] = 0.1
    """Share of every round's new examples that later rounds see again (``λ``)."""
    smoothing: Annotated[float, AllowedRange(0, 1, exclusive=True, symbol="η")] = 1.0
    """How far the policy moves to its update (``η``); 1 is all the way."""
    k: Annotated[int, AllowedRange(1, MAX_CANDIDATES)] = option(
        5,
        "Candidates that are validated at the end; not in the guided search.",
        "Search",
        shown_default="the preset's",
    )
    """Size of the final set."""
    final_set: str = "distinct"
    """``distinct``: the k most probable different routes; ``raw``: the k most probable programs, then duplicates
    dropped (the paper's way); ``anchored``: the standard pass and the k - 1 most probable other routes; ``marginal``:
    the k routes that all their programs together make most probable."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        if self.elite > self.draws:
            raise SettingsError(
                f"elite (m) = {self.elite} is not allowed: it must be at most draws (K) = {self.draws},"
                " and equal to it to keep all draws"
            )
        check_epsilons(self.epsilon_local, self.epsilon_operator)
        check_choice("final_set", self.final_set, FINAL_SETS)


@dataclass(frozen=True)
class RandomSettings(PolicySamplingSettings, FixedRouteCountSettings):
    """The settings of the random search; it always samples from the prior."""

    epsilon_local: Annotated[float, AllowedRange(0, 1, symbol="ε_loc")] = 0.2
    """Prior mass spread over all moves and rejoin (``ε_loc``)."""
    epsilon_operator: Annotated[float, AllowedRange(0, 1, symbol="ε_op")] = 0.0867
    """Prior mass spread over all adds (``ε_op``)."""
    replay: Annotated[float, AllowedRange(0, 1, symbol="λ")] = 0.1
    """Share of every round's new examples that later rounds see again (``λ``)."""

    def __post_init__(self) -> None:
        """Reject impossible settings."""
        super().__post_init__()
        check_epsilons(self.epsilon_local, self.epsilon_operator)
