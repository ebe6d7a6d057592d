"""Messages that the troubleshooting page quotes are messages of the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
VALUE = "\0"


def texts(tree):
    """All texts of a module; what is filled in stands as one character."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def quoted():
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    return rows + re.findall(r"`(memory ran out [^`]+)`", PAGE)


@pytest.fixture(scope="module")
def written():
    files = (ROOT / "src").rglob("*.py")
    return [text for file in files for text in texts(ast.parse(file.read_text(encoding="utf-8")))]


@pytest.mark.parametrize("message", quoted())
def test_the_code_says_so(message, written):
    parts = [re.escape(part.strip()) for part in message.split("…") if part.strip()]
    pattern = re.compile(".*".join(parts), re.DOTALL)
    assert any(pattern.search(text) for text in written), message


def test_there_are_some():
    assert len(quoted()) > 20
