"""The error family: what is wrong, where, and how to fix it.

A user's mistake is always one of these; the command line prints it as one line, without a traceback.
Anything else that escapes is a defect of this project.
"""

import difflib
import os
import re
from collections.abc import Iterable

PAUSED = 75
"""Exit status of a command that was interrupted and can be repeated to continue."""


class MacroError(Exception):
    """Base of every error this project raises on purpose."""

    status = 2
    """Exit status of the command."""


class NotationError(MacroError):
    """A route could not be parsed; names the token and its position."""


class RouteError(MacroError):
    """A route does not fit the model; names the step and the rule it breaks."""


class RouteOutsideSpaceError(RouteError):
    """A route is sound but outside MACRO's route space; names the step and the rule it breaks."""


class SettingsError(MacroError):
    """A setting is unknown or impossible; names it and what is allowed."""


class SearchError(MacroError):
    """A search was continued with a state or results that do not belong to it."""


class RunError(MacroError):
    """A run's folder cannot be made, opened, held or written; names the folder and how to go on."""


class TaskError(MacroError):
    """A task or its data is wrong; names the file, the line and the reason."""


class ModelError(MacroError):
    """A model cannot be found, loaded or routed; names the model, the reason and what to do instead."""


class ExportError(MacroError):
    """A route cannot be written for another program; names the target, the reason and what to use instead."""


def shorten_value(value: object, limit: int = 60) -> str:
    """A quoted value that is safe to print inside a one-line message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def suggest_name(name: str, allowed: Iterable[str]) -> str:
    """A closing hint such as "; did you mean 'draws'?", or nothing when no name is close."""
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:API|ACCESS|PRIVATE)_?KEY|_KEYS?$", re.IGNORECASE
)
_SHORTEST_SECRET = 8
"""Shorter values also occur in ordinary text."""


def redact_secrets(text: str) -> str:
    """Replace the values of environment variables that are named like secrets by their names.

    Libraries put tokens into their messages now and then; what is kept in a run's folder is often shared. To be used
    before a text is cut: a part of a secret would not be found.
    """
    # The longest first: one value may be the beginning of another.
    for name, value in sorted(os.environ.items(), key=lambda item: -len(item[1])):
        if len(value) >= _SHORTEST_SECRET and _SECRET.search(name) and value in text:
            text = text.replace(value, f"[{name}]")
    return text
