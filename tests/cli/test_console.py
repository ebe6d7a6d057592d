"""Tables and sentences in a terminal of eighty columns, and in a pipe."""

import io
import re
import sys

import pytest

from macro_routing.cli.console import print_paragraph, print_table

HEADINGS = [
    "no.",
    "deviation",
    "accuracy without it, %",
    "difference, points (95 % interval)",
    "p",
    "what is left",
    "empty",
]
ROWS = [
    ["", "applies layer 3 again", "61.5", "+2.5 (−1.0 to +6.0)", "0.21", "L0-L7 " * 20 + "RJ", ""],
    ["1", "the whole route", "59.0", "+5.0 (+1.0 to +9.0)", "0.01", "L0 RJ", ""],
]
PROSE = (
    "Each deviation is dropped in turn, and the others are kept: the difference is what the route has over them. " * 2
)


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def _print_to(out, monkeypatch):
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return out


@pytest.mark.parametrize("kind", [_Terminal, io.StringIO])
def test_nothing_is_wider_than_the_terminal_and_no_word_is_broken(kind, monkeypatch):
    printed = _print_to(kind(), monkeypatch)
    print_table(HEADINGS, ROWS, left=("deviation",), box=None)
    print_paragraph(PROSE)
    lines = printed.getvalue().splitlines()
    if printed.isatty():
        assert max(map(len, lines)) <= 80
        assert any(line.split() == ["p", "0.21"] for line in lines)
        assert "empty" not in printed.getvalue()
        assert [line for line in lines if line.startswith("no.")] == ["no. 1"]
    else:
        assert any(line.split()[:3] == ["no.", "deviation", "accuracy"] for line in lines)
        assert lines[-1] == PROSE
    words = printed.getvalue().split()
    assert [word for word in words if word in set(PROSE.split())][-len(PROSE.split()) :] == PROSE.split()


def test_a_narrow_table_stays_a_table(monkeypatch):
    printed = _print_to(_Terminal(), monkeypatch)
    print_table(["route", "correct"], [["L0 RJ", "5"], ["L0-L3 RJ", "6"]], left=("route",), box=None)
    first = re.sub(r"\x1b\[\d*m", "", printed.getvalue().splitlines()[0])
    assert first.split() == ["route", "correct"]
