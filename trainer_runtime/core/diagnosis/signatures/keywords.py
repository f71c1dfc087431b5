"""The words that every text of a regular expression has, derived from the expression itself.

A wording of a failure is found by its words first (see shapes.py): letters only, in lower case,
digits deleted. The expression's own edges count as edges of words.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

# What parses expressions has no public name.
_SINCE_3_11 = sys.version_info >= (3, 11)
parser: Any = import_module("re._parser" if _SINCE_3_11 else "sre_parse")
codes: Any = import_module("re._constants" if _SINCE_3_11 else "sre_constants")

_MOST_GROUPS = 64
_EDGE, _UNKNOWN = " ", "\0"  # between words; anything, so that what touches it is not a whole word
_Node = tuple[object, object]


def keywords_of(pattern: str) -> str:
    """Groups of words as in `Signature.keywords`: each text that matches has all of one group.

    Raises:
        ValueError: an alternative has no whole word, or there are more than 64 alternatives.
    """
    groups: set[frozenset[str]] = set()
    for text in _texts(parser.parse(pattern)):
        words = frozenset(word for word in re.findall(r"(?<!\0)\b[a-z]+\b(?!\0)", text))
        if not words:
            raise ValueError(f"an alternative of {pattern!r} has no whole word: {text!r}")
        groups.add(words)
    least = [group for group in groups if not any(other < group for other in groups)]
    return "|".join(sorted("+".join(sorted(group, key=_rarest_first)) for group in least))


def _rarest_first(word: str) -> tuple[int, str]:
    """Long words are rare, and the first of a group is searched for."""
    return -len(word), word


def _texts(nodes: Iterable[_Node]) -> list[str]:
    """What texts of a sequence have: letters, `_EDGE` and `_UNKNOWN`."""
    texts = [_EDGE]
    for node in nodes:
        if node[0] is codes.LITERAL:  # nearly all are
            shape = _of_literal(node[1])
            texts = [text + shape for text in texts]
            continue
        options = list(dict.fromkeys(_options(node)))
        if len(texts) * len(options) > _MOST_GROUPS:
            options = [_UNKNOWN]
        texts = [text + option for text in texts for option in options]
    return [text + _EDGE for text in texts]


def _options(node: _Node) -> Iterator[str]:
    code, value = node
    if code is codes.AT:
        yield _EDGE if value is codes.AT_BOUNDARY else ""
    elif code is codes.SUBPATTERN:
        yield from _inside(value[-1])  # type: ignore[index]
    elif code is codes.BRANCH:
        for branch in value[1]:  # type: ignore[index]
            yield from _inside(branch)
    elif code is codes.IN:
        yield _of_class(value)  # type: ignore[arg-type]
    elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        yield from _repeated(*value)  # type: ignore[misc]
    elif code in (codes.ASSERT, codes.ASSERT_NOT):
        yield ""
    else:
        yield _UNKNOWN


def _inside(nodes: Iterable[_Node]) -> Iterator[str]:
    """The texts of a part, without the edges of a whole expression."""
    for text in _texts(nodes):
        yield text[len(_EDGE) : -len(_EDGE)]


def _repeated(least: int, most: object, nodes: Sequence[_Node]) -> Iterator[str]:
    is_class = len(nodes) == 1 and nodes[0][0] in (codes.IN, codes.LITERAL, codes.CATEGORY)
    options = list(_inside(nodes))
    if is_class and options in ([""], [_EDGE]):
        yield from dict.fromkeys((options[0], options[0] if least else ""))
    elif (least, most) == (0, 1):
        yield from ("", *options)
    elif least:
        yield _UNKNOWN.join(("", *options, "")) if len(options) == 1 else _UNKNOWN
    else:
        yield _UNKNOWN


def _of_class(members: Sequence[_Node]) -> str:
    """A class of digits, of edges, of a letter in both cases, or of anything."""
    shapes = {_of_member(member) for member in members}
    return shapes.pop() if len(shapes) == 1 else _UNKNOWN


def _of_member(member: _Node) -> str:
    code, value = member
    if code is codes.LITERAL:
        return _of_literal(value)
    if code is codes.CATEGORY and value is codes.CATEGORY_DIGIT:
        return ""
    if code is codes.CATEGORY and value is codes.CATEGORY_SPACE:
        return _EDGE
    if code is codes.RANGE and value == (ord("0"), ord("9")):
        return ""
    return _UNKNOWN


def _of_literal(value: Any) -> str:
    """A character, by its number, as it stands in a line's shape."""
    character = chr(value)
    if character.isascii() and character.isalpha():
        return character.lower()
    return "" if character.isdigit() or character == "+" or not character.isascii() else _EDGE
