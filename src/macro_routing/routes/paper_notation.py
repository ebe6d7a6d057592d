"""The paper's notation, read: ``L0-L7 L5(+h-4) L2(-0.25h-1) RJ`` (specification §1, "Text form").

Printing is ``str(program)`` and ``str(route)``; for every program ``parse_program(str(program)) == program``.
"""

import re

from macro_routing.errors import NotationError, RouteError, shorten_value
from macro_routing.routes.route import MAX_LAYERS, MAX_STEPS, Add, Program, Step

_NUMBER = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_STEP = re.compile(rf"L([0-9]+)(?:\(([+-])({_NUMBER})?h-([0-9]+)\))?")
_RUN = re.compile(r"L([0-9]+)-L?([0-9]+)")
_DASHES = {ord(dash): "-" for dash in "‐‑‒–—−"} | {0xFEFF: None}
_GRAMMAR = "tokens are L7, L0-L7, L5(+h-4), L2(-0.25h-1) and RJ"


def parse_program(text: str) -> Program:
    """Read a program in the paper's notation; the error names a malformed token and its number."""
    # PDF readers and word processors turn the notation's hyphens into other dashes.
    tokens = text.translate(_DASHES).split()
    if not tokens:
        raise NotationError(f"the route is empty; {_GRAMMAR}")
    rejoin = tokens[-1] == "RJ"
    steps: list[Step] = []
    for number, token in enumerate(tokens[:-1] if rejoin else tokens, 1):
        steps += _parse_token(token, number, len(tokens))
        if len(steps) > MAX_STEPS:
            raise NotationError(f"the route has more than {MAX_STEPS} steps by token {number} ({shorten_value(token)})")
    if not steps:
        raise NotationError("the route is only RJ; at least one step must come before it, as in 'L0 RJ'")
    return Program(tuple(steps), rejoin)


def _parse_token(token: str, number: int, count: int) -> list[Step]:
    where = f"token {number} of {count}, {shorten_value(token)}"
    if match := _STEP.fullmatch(token):
        return [_parse_step(match, where)]
    if match := _RUN.fullmatch(token):
        first, last = (_parse_layer(digits, where) for digits in match.groups())
        if first > last:
            raise NotationError(f"{where}: a run ascends; write the steps of a descent one by one")
        return [Step(layer) for layer in range(first, last + 1)]
    if token == "RJ":
        raise NotationError(f"{where}: RJ ends a route and can only be its last token")
    capital = token.replace("l", "L").replace("rj", "RJ")
    is_known = capital == "RJ" or _STEP.fullmatch(capital) or _RUN.fullmatch(capital)
    hint = f"; did you mean {capital!r}?" if is_known else ""
    raise NotationError(f"{where}, is not part of a route; {_GRAMMAR}{hint}")


def _parse_step(match: re.Match[str], where: str) -> Step:
    digits, sign, size, back = match.groups()
    layer = _parse_layer(digits, where)
    if sign is None:
        return Step(layer)
    if len(back) > len(str(MAX_STEPS)):
        raise NotationError(f"{where}: an add cannot look back {shorten_value(back)} states")
    try:
        return Step(layer, Add(int(back), float(sign + (size or "1"))))
    except RouteError as error:
        raise NotationError(f"{where}: {error}") from None


def _parse_layer(digits: str, where: str) -> int:
    # The length is checked before int(), which rejects very long numbers with an error of its own.
    short = digits.lstrip("0") or "0"
    if len(short) > len(str(MAX_LAYERS)) or int(short) >= MAX_LAYERS:
        raise NotationError(f"{where}: layer numbers go up to {MAX_LAYERS - 1}")
    return int(short)
