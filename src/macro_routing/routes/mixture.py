"""A mixture: several routes of one model whose log-probabilities are added with weights.

A single route is a mixture of one. A negative weight takes away what a damaged route predicts, as contrastive decoding
does with a weaker model. Where choices are compared by likelihood, a member may predict them without having read the
question: subtracted, it takes away what a choice scores by itself (PMI). Greedy choices do not change when all weights
are scaled by the same positive number; the normal form is scaled such that the weights sum to one, so that sampling has
its usual temperature.
"""

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

from macro_routing.errors import NotationError, RouteError, shorten_value
from macro_routing.routes.paper_notation import parse_program
from macro_routing.routes.route import Route, Step

MAX_MEMBERS = 8
NO_QUESTION = "no question"
_MIN_WEIGHT, _MAX_WEIGHT = 1e-6, 1e6
_MAX_SUMMED_WEIGHT = 1e100
"""Of a part of a sum, before the sum is scaled."""
_MEMBER = re.compile(
    r"([+\u2212-]?)\s*(?:((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*(?:\*\s*)?)?\[([^\[\]]*)\]\s*", re.IGNORECASE
)


@dataclass(frozen=True)
class Member:
    """A route and its weight."""

    route: Route
    """The route."""
    weight: float = 1.0
    """Its weight; negative weights subtract its prediction."""
    with_question: bool = True
    """False: it predicts choices without having read the question, after the rest of the prompt."""

    def __post_init__(self) -> None:
        """Reject what is not a route or not a usable weight."""
        if not isinstance(self.route, Route):
            raise RouteError(f"{shorten_value(self.route)} is not a Route; parse it with parse_route(text, layers)")
        if isinstance(self.weight, bool) or not isinstance(self.weight, Real):
            raise RouteError(f"the weight of a mixture's route must be a number, not {shorten_value(self.weight)}")
        if not _MIN_WEIGHT <= abs(self.weight) <= _MAX_WEIGHT:
            raise RouteError(
                f"the weight of a mixture's route must be between {_MIN_WEIGHT:g} and {_MAX_WEIGHT:g} in size, not"
                f" {shorten_value(self.weight)}{'' if self.weight else '; leave the route out'}"
            )
        object.__setattr__(self, "weight", float(self.weight))

    @property
    def source(self) -> tuple[Route, bool]:
        """What it adds, whatever its weight."""
        return self.route, self.with_question

    @property
    def is_standard(self) -> bool:
        """Whether it is the standard pass with the question."""
        return self.with_question and self.route.is_standard

    @property
    def notation(self) -> str:
        """The member without its weight, such as ``L0-L3 L5 RJ`` or ``L0 RJ | no question``."""
        return str(self.route) if self.with_question else f"{self.route} | {NO_QUESTION}"

    def __str__(self) -> str:
        """For people."""
        return f"{self.weight:+.4g} × {self.notation}"


Source = tuple[Route, bool]
"""A route, and whether it reads the question."""


@dataclass(frozen=True)
class Mixture:
    """Routes with weights, kept in a fixed order; mixtures with equal normal forms make the same greedy choices."""

    members: tuple[Member, ...]
    """The routes with their weights."""

    def __post_init__(self) -> None:
        """Reject members that cannot be added; then sort: positive weights, the standard pass, then by text."""
        if isinstance(self.members, str) or not isinstance(self.members, Iterable):
            raise RouteError(f"a mixture is made of members, not of {shorten_value(self.members)}; see parse_mixture")
        object.__setattr__(self, "members", tuple(self.members))
        for member in self.members:
            if not isinstance(member, Member):
                raise RouteError(f"{shorten_value(member)} is not a Member; write Member(route, weight)")
        if not self.members:
            raise RouteError("a mixture needs at least one route")
        if len(self.members) > MAX_MEMBERS:
            raise RouteError(f"a mixture may have at most {MAX_MEMBERS} routes, this one has {len(self.members)}")
        if len({member.route.layers for member in self.members}) > 1:
            sizes = ", ".join(sorted({str(member.route.layers) for member in self.members}))
            raise RouteError(
                f"the routes of a mixture must be of the same model, these are of models of {sizes} layers; write all"
                " for the same model"
            )
        if len({member.source for member in self.members}) < len(self.members):
            raise RouteError("a mixture has each route once; add up the weights of equal routes")
        # A text that begins with a minus sign would be an option of a command.
        ordered = sorted(self.members, key=lambda member: (member.weight < 0, not member.is_standard, member.notation))
        object.__setattr__(self, "members", tuple(ordered))

    @classmethod
    def from_route(cls, route: Route, *, with_question: bool = True) -> "Mixture":
        """The mixture of one route."""
        return cls((Member(route, with_question=with_question),))

    @classmethod
    def from_weights(cls, weights: "Iterable[tuple[RouteOrMixture, float]]") -> "Mixture":
        """The normal form of a sum of routes and mixtures: equal routes together, none with weight 0."""
        sums: dict[Source, float] = {}
        for part, weight in weights:
            if not isinstance(part, Route | Mixture):
                raise RouteError(f"{shorten_value(part)} is not a Route or Mixture; parse it with parse_mixture")
            if isinstance(weight, bool) or not isinstance(weight, Real) or not abs(weight) <= _MAX_SUMMED_WEIGHT:
                raise RouteError(
                    f"the weight of a mixture's route must be a finite number up to {_MAX_SUMMED_WEIGHT:g}, not"
                    f" {shorten_value(weight)}"
                )
            for member in to_mixture(part).members:
                sums[member.source] = sums.get(member.source, 0.0) + float(weight) * member.weight
        if not any(sums.values()):
            raise RouteError("the weights of a mixture add up to 0 for every route; at least one route needs a weight")
        scale = _compute_scale(sums.values())
        scaled = ((source, weight / scale) for source, weight in sums.items())
        return cls(
            tuple(
                Member(route, weight, with_question)
                for (route, with_question), weight in scaled
                if abs(weight) >= _MIN_WEIGHT
            )
        )

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.members[0].route.layers

    @property
    def routes(self) -> tuple[Route, ...]:
        """The members' routes."""
        return tuple(member.route for member in self.members)

    @property
    def weights(self) -> tuple[float, ...]:
        """The members' weights."""
        return tuple(member.weight for member in self.members)

    @property
    def reference(self) -> int:
        """Index of the member that says which tokens are plausible: the standard pass, else the largest weight."""
        indices = range(len(self.members))
        standard = [index for index in indices if self.members[index].is_standard]
        return standard[0] if standard else max(indices, key=self.weights.__getitem__)

    @property
    def compares_choices_only(self) -> bool:
        """Whether a member does not read the question: then only the likelihoods of choices can be compared."""
        return not all(member.with_question for member in self.members)

    @property
    def is_single(self) -> bool:
        """Whether it is one route; a positive weight of it changes no greedy choice."""
        return len(self.members) == 1 and self.members[0].weight > 0 and not self.compares_choices_only

    @property
    def is_standard(self) -> bool:
        """Whether it is the standard pass alone."""
        return self.is_single and self.members[0].is_standard

    @cached_property
    def length(self) -> int:
        """Layer applications: members share them up to their first difference, if they read the same.

        A member without the question counts in full, though it reads less.
        """
        return sum(
            _count_prefixes(member.route for member in self.members if member.with_question == with_question)
            for with_question in (True, False)
        )

    def __str__(self) -> str:
        """Such as ``1.7 [L0 RJ] - 0.7 [L0-L3 L5 RJ]``; a single route without weight and brackets."""
        if self.is_single and self.members[0].weight == 1:
            return str(self.members[0].route)
        texts = [
            f"{'-' if member.weight < 0 else '+'} {abs(member.weight)!r} [{member.notation}]" for member in self.members
        ]
        return " ".join(texts).removeprefix("+ ")


def number_prefixes(routes: Iterable[Route]) -> dict[tuple[Step, ...], int]:
    """The prefix tree of the routes: a number for every different beginning, parents first."""
    numbers: dict[tuple[Step, ...], int] = {}
    for route in routes:
        for length in range(1, route.length + 1):
            numbers.setdefault(route.steps[:length], len(numbers))
    return numbers


def _count_prefixes(routes: Iterable[Route]) -> int:
    """``len(number_prefixes(routes))``, in a time that grows with the lengths and not with their squares."""
    numbers: dict[tuple[int, Step], int] = {}
    for route in routes:
        parent = -1
        for step in route.steps:
            parent = numbers.setdefault((parent, step), len(numbers))
    return len(numbers)


def _compute_scale(weights: Collection[float]) -> float:
    """The sum of the weights; where it is tiny or not positive, the largest."""
    largest, total = max(map(abs, weights), default=1.0), math.fsum(weights)
    return total if total > largest / 1000 else largest or 1.0


def parse_mixture(text: str, layers: int) -> Mixture:
    """Read the notation of ``str(mixture)``; a route without brackets is a mixture of one."""
    if "[" not in text:
        return Mixture.from_route(parse_program(text).to_route(layers))
    members: list[Member] = []
    text, end = text.strip(), 0
    while end < len(text):
        if len(members) == MAX_MEMBERS:
            raise NotationError(f"a mixture may have at most {MAX_MEMBERS} routes; leave some out")
        match = _MEMBER.match(text, end)
        if match is None or (members and not match[1]):
            raise NotationError(
                f"{shorten_value(text[end:])} is not a route of a mixture; write 1.5 [L0 RJ] - 0.5 [L0-L3 L5 RJ]"
            )
        weight = float(match[2] or 1) * (-1 if match[1] in ("-", "\u2212") else 1)
        program, bar, condition = match[3].partition("|")
        if bar and " ".join(condition.lower().split()) != NO_QUESTION:
            raise NotationError(
                f"{shorten_value(condition.strip())} cannot be asked of a route; write [L0 RJ | {NO_QUESTION}]"
            )
        members.append(Member(parse_program(program).to_route(layers), weight, with_question=not bar))
        end = match.end()
    return Mixture(tuple(members))


RouteOrMixture = Route | Mixture
"""What can be evaluated and deployed."""


def parse_program_or_mixture(text: str, layers: int) -> RouteOrMixture:
    """Read ``str`` of a route or a mixture; a mixture of one is its route."""
    return to_simplest_form(parse_mixture(text, layers))


def to_mixture(route: RouteOrMixture) -> Mixture:
    """A route as a mixture of one; a mixture as it is."""
    return route if isinstance(route, Mixture) else Mixture.from_route(route)


def to_simplest_form(mixture: Mixture) -> RouteOrMixture:
    """The route of a mixture of one; any other mixture as it is."""
    return mixture.routes[0] if mixture.is_single else mixture


def require_question(route: RouteOrMixture) -> None:
    """Reject a mixture that can only compare choices, where a model is to be run or exported."""
    if to_mixture(route).compares_choices_only:
        raise RouteError(
            f"a route that is asked without the question (| {NO_QUESTION}) only compares choices by likelihood: leave"
            " it out, or evaluate on a task with choices (macro evaluate --mode likelihood)"
        )


def require_single_route(route: RouteOrMixture, use: str = "", instead: str = "") -> Route:
    """The route, where ``use`` takes no mixtures; ``instead`` says what does."""
    require_question(route)
    simplest = to_simplest_form(to_mixture(route))
    if isinstance(simplest, Mixture):
        needed = f"{use} takes a single route" if use else "a single route is needed here"
        best = max(simplest.members, key=lambda member: member.weight)
        if len(simplest.members) == 1:
            raise RouteError(
                f"this subtracts one route, but {needed}; give '{best.route}' without its weight if that is meant"
            )
        remedies = [instead, f"give one of them, such as '{best.route}'"]
        raise RouteError(
            f"this is a mixture of {len(simplest.members)} routes, but {needed}; {', or '.join(filter(None, remedies))}"
        )
    return simplest
