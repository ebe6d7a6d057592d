"""Inputs that nobody meant: arbitrary ones, and good ones with something wrong in them."""

import json

from hypothesis import strategies as st

NASTY = [
    *(b"\x00", b"\xff\xfe", b"null", b"-1", b"1e999", b"NaN", b'"', b"{", b"}", b"[", b"\\ud800", b"'''", b"\r\n"),
    *(
        b"9" * 400,
        b"[" * 3000,
        b'{"a":' * 2000,
        b"L99999999",
        b"(+h-",
        b"0x",
        b"true",
        b"=",
        b"\xc3",
        "Ⅷ٣".encode(),
        b" " * 300,
    ),
    *(b"../../etc/passwd", b"\x1b[31m", b"%s%n", b"{0.__class__}", b"!!python/object/apply:os.system [id]", b"&a [*a]"),
]

values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=12),
        st.sampled_from([10**400, -1, 0, "", "L0 RJ", "nan", "../x", "\ud800"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)
"""What JSON and TOML can hold."""


@st.composite
def damaged(draw, good: bytes):
    """Bytes of a good file with a few stretches replaced."""
    found = good
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(found)))
        length = draw(st.one_of(st.just(0), st.integers(0, 8), st.integers(0, len(found))))
        piece = draw(st.one_of(st.binary(max_size=8), st.sampled_from(NASTY)))
        found = found[:start] + piece + found[start + length :]
    return found


@st.composite
def mistaken(draw, good):
    """A good document with one value, wherever in it, replaced, removed or added."""
    document = json.loads(json.dumps(good))
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return document
        key = draw(st.sampled_from(keys))
        if isinstance(node[key], dict | list) and node[key] and draw(st.integers(0, 2)):
            node = node[key]
            continue
        change = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if change == "remove":
            del node[key]
        elif change == "add" and isinstance(node, dict):
            node[draw(st.text(max_size=8))] = draw(values)
        else:
            node[key] = draw(values)
        return document


def written(document) -> bytes:
    """As JSON; halves of surrogate pairs stay halves."""
    return json.dumps(document).encode()


def files(good: bytes):
    """Damaged text, a mistaken document where it is JSON, or anything at all."""
    kinds = [damaged(good), st.binary(max_size=200)]
    try:
        document = json.loads(good)
    except ValueError:
        return st.one_of(*kinds)
    return st.one_of(mistaken(document).map(written), *kinds)
