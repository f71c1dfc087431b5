"""Strategies for what a log, a host or an agent may send, and how many examples are tried."""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

# Escapes, bidi, zero-width and surrogate characters, a NUL, and what ends lines for some readers.
ODD = "\x00\x07\x1b\x7f\x9b\u200b\u202e\u2066\ufeff\ud800\udfff\u2028\x85\r\n\t\\\"'{}[]%:/~"
ODD_NUMBERS = (0, -1, 2**53, 2**63, 2**64, 10**308, 1e308, -1e308, 5e-324, float("nan"))

texts = st.one_of(st.text(max_size=40), st.text(ODD, max_size=12), st.just("../" * 40))
numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([*ODD_NUMBERS, float("inf"), float("-inf")])
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def examples(count: int) -> settings:
    """`count` examples in the suite; with `TRAINMASTER_FUZZ`, so many."""
    return settings(max_examples=int(os.environ.get("TRAINMASTER_FUZZ", count)), print_blob=True)


def mutated(lines: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Lines of JSON with fields exchanged, removed or nested, and with bytes changed."""
    return st.one_of(
        st.builds(_with_field, lines, texts, values),
        st.builds(_without_field, lines, st.integers(0, 20)),
        st.builds(_nested, lines, st.integers(1, 2000)),
        st.builds(_with_bytes, lines, st.binary(min_size=1, max_size=6), st.integers(0, 10**6)),
    )


def _with_field(line: bytes, name: str, value: Any) -> bytes:
    document = json.loads(line)
    known = sorted(document)
    chosen = known[len(name) % len(known)] if len(name) % 2 else name
    return json.dumps({**document, chosen: value}).encode("utf-8", "surrogatepass")


def _without_field(line: bytes, number: int) -> bytes:
    document = json.loads(line)
    document.pop(sorted(document)[number % len(document)])
    return json.dumps(document).encode()


def _nested(line: bytes, depth: int) -> bytes:
    return line[:-1] + b',"x":' + b"[" * depth + b"]" * depth + b"}"


def _with_bytes(line: bytes, junk: bytes, place: int) -> bytes:
    at = place % len(line)
    return line[:at] + junk + line[at + len(junk) :]
