"""Judges whether a regular expression takes a bounded time on any line, before it is used.

Python's `re` backtracks and can't be interrupted. Matching is slow where one part of an expression
may end at many places, because the next part accepts the same characters: such repeats are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_LOOSE = 2
MOST_REPEATS = 16
_BYTES = [bytes([byte]) for byte in range(256)]
_TOKEN = re.compile(
    r"(?P<atom>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?P?<[=!]|\?P<\w+>|\?P=\w*|\?[^)]?)?)"
    r"|(?P<close>\))|(?P<repeat>[*+?]|\{\d*,?\d*\})[+?]?|(?P<either>\|)|(?P<edge>[\^$])"
    r"|(?P<other>.)",
    re.DOTALL,
)


@dataclass(slots=True)
class _Atom:
    """A character or set: the bytes that it accepts, how deep in groups, and how often."""

    accepts: frozenset[bytes]
    depth: int
    least: int = 1
    is_repeated: bool = False


def why_unbounded(expression: str) -> str | None:
    """Why matching may take long; None where it does not. The expression need not be valid."""
    atoms: list[_Atom] = []
    depth, last = 0, ""
    for token in _TOKEN.finditer(expression):
        kind, text = token.lastgroup, token[0]
        if (kind == "open" and "?P=" in text) or re.fullmatch(r"\\[1-9]", text):
            return "refers back to a group"
        if kind == "repeat":
            if last == "close" and not text.startswith("?"):
                return "repeats a group"
            if last == "atom":
                atoms[-1].least = 0 if text[0] in "*?" or text.startswith(("{0", "{,")) else 1
                atoms[-1].is_repeated = text[0] != "?"
        elif kind in ("atom", "other"):
            atoms.append(_Atom(_accepted(text), depth))
        elif kind in ("open", "close"):
            depth += 1 if kind == "open" else -1
        last = "atom" if kind == "other" else kind or ""
    return _counted(atoms)


def _counted(atoms: Sequence[_Atom]) -> str | None:
    repeats = [place for place, atom in enumerate(atoms) if atom.is_repeated]
    if len(repeats) > MOST_REPEATS:
        return f"has {len(repeats)} repeats"
    loose = sum(any(_overlapping(atoms, place)) for place in repeats)
    if loose > MOST_LOOSE:
        return f"has {loose} repeats that may end at many places, such as .*"
    return None


def _overlapping(atoms: Sequence[_Atom], place: int) -> Iterator[bool]:
    """For each atom that may follow a repeat directly, whether it accepts the same characters."""
    for atom in atoms[place + 1 :]:
        yield not atoms[place].accepts.isdisjoint(atom.accepts)
        if atom.least and atom.depth <= atoms[place].depth:
            return


def _accepted(atom: str) -> frozenset[bytes]:
    try:
        matches = re.compile(atom.encode()).fullmatch
    except re.error:
        return frozenset(_BYTES)
    return frozenset(byte for byte in _BYTES if matches(byte))
