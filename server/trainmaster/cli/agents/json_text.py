"""Changes one entry of a JSON object in a text, and no other byte of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\{[ \t]*\r?\n([ \t]+)\S")
_BOM = "\ufeff"
# Numbers stay texts: those of other programs may be larger than ours, or finer.
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)


@dataclass(frozen=True, slots=True)
class _Member:
    """A key of an object, its value, and where that stands in the text."""

    key: str
    value: Any
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Object:
    """`begin`: of its opening brace; `end`: of the closing one."""

    begin: int
    end: int
    members: tuple[_Member, ...]

    def member(self, key: str) -> _Member | None:
        """Raises:
        ValueError: the key stands there twice.
        """
        named = [member for member in self.members if member.key == key]
        if len(named) > 1:
            raise ValueError(f"{key!r} stands there twice")
        return named[0] if named else None


def with_entry(text: str, key: str, name: str, entry: Mapping[str, object]) -> str:
    """The text with `{key: {name: entry}}`, `key` and `name` added where they are missing.

    Raises:
        ValueError: it is not JSON, or one of them stands there twice.
        TypeError: it or `key` is not an object.
    """
    style = _Style.of(text)
    if not text.strip().removeprefix(_BOM):
        return text[:1].strip() + style.written({key: {name: dict(entry)}}, 0) + style.newline
    top = _object(text, 1 if text.startswith(_BOM) else 0)
    if _SPACE.fullmatch(text, top.end + 1) is None:
        raise ValueError("more follows its object")
    holder = top.member(key)
    if holder is None:
        return _added(text, top, key, {name: dict(entry)}, style, 1)
    if not isinstance(holder.value, dict):
        raise TypeError(f"{key!r} is not an object")
    servers = _object(text, holder.begin)
    ours = servers.member(name)
    if ours is None:
        return _added(text, servers, name, dict(entry), style, 2)
    if ours.value == _DECODER.decode(json.dumps(entry)):
        return text
    return text[: ours.begin] + style.written(dict(entry), 2) + text[ours.end :]


@dataclass(frozen=True, slots=True)
class _Style:
    indent: str
    newline: str

    @classmethod
    def of(cls, text: str) -> _Style:
        indent = _INDENT.search(text)
        return cls(indent[1] if indent else "  ", "\r\n" if "\r\n" in text else "\n")

    def written(self, value: object, depth: int) -> str:
        lines = json.dumps(value, indent=self.indent, ensure_ascii=False).split("\n")
        return (self.newline + self.indent * depth).join(lines)


def _added(text: str, holder: _Object, key: str, value: object, style: _Style, depth: int) -> str:
    """The text with one more member at the end of an object."""
    begin = f"{style.newline}{style.indent * depth}"
    member = f"{begin}{json.dumps(key)}: {style.written(value, depth)}"
    if holder.members:
        at = holder.members[-1].end
        return f"{text[:at]},{member}{text[at:]}"
    at = holder.begin + 1
    return f"{text[:at]}{member}{style.newline}{style.indent * (depth - 1)}{text[holder.end :]}"


def _object(text: str, at: int) -> _Object:
    """Raises: ValueError, TypeError: as `with_entry`."""
    begin = _after_space(text, at)
    if text[begin : begin + 1] != "{":
        raise TypeError("it is not a JSON object")
    members: list[_Member] = []
    at = _after_space(text, begin + 1)
    if text[at : at + 1] == "}":
        return _Object(begin, at, ())
    while True:
        key, at = _DECODER.raw_decode(text, at)
        at = _after_space(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            raise ValueError("it is not JSON")
        value_begin = _after_space(text, at + 1)
        value, value_end = _DECODER.raw_decode(text, value_begin)
        members.append(_Member(key, value, value_begin, value_end))
        at = _after_space(text, value_end)
        if text[at : at + 1] == "}":
            return _Object(begin, at, tuple(members))
        if text[at : at + 1] != ",":
            raise ValueError("it is not JSON")
        at = _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
