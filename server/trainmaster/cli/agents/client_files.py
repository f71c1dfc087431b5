"""A client's configuration with our server in it: everything else stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from trainmaster.cli.agents.clients import NAME, Client
from trainmaster.errors.errors import UsageError

_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\{[ \t]*\r?\n([ \t]+)\S")
_BOM = "\ufeff"
# Numbers stay texts: those of other programs may be larger than ours, or finer.
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_TABLE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]")


def with_server(client: Client, path: Path, text: str, entry: Mapping[str, object]) -> str:
    """The configuration `text` of `path` (empty for none) with `entry` as our server.

    An older entry of ours is replaced.

    Raises:
        UsageError: `AGENT_CONFIG_UNREADABLE`, the text is not what the client writes there; nothing
            is to be changed then.
    """
    change = _json_with if client.format == "json" else _toml_with
    try:
        return change(text, client.key, entry)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            "AGENT_CONFIG_UNREADABLE",
            f"{path} can't be changed safely: {error}.",
            f"Add by hand below {client.key!r}: {json.dumps({NAME: dict(entry)})}",
        ) from error


def _json_with(text: str, key: str, entry: Mapping[str, object]) -> str:
    return with_entry(text, key, NAME, entry)


def _toml_with(text: str, key: str, entry: Mapping[str, object]) -> str:
    """Appends our tables, instead of the older ones; all other lines stay."""
    before = _parsed(text)
    if before.get(key, {}).get(NAME) == _parsed(_tables("", entry)):
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    kept = _without_tables(text, f"{key}.{NAME}")
    if kept and not kept.endswith("\n"):
        kept += newline
    apart = newline if kept and not kept.endswith(newline * 2) else ""
    written = kept + apart + _tables(f"{key}.{NAME}", entry).replace("\n", newline)
    after = _parsed(written)
    ours = after[key].pop(NAME) == _parsed(_tables("", entry))
    if not ours or _without_server(after, key) != _without_server(before, key):
        raise ValueError("our server stands there in a form that is not recognised")
    return written


def _parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text, parse_float=str)


def _without_server(config: dict[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(config.get(key, {}), dict):
        raise TypeError(f"{key!r} is not a table")
    servers = {name: value for name, value in config.get(key, {}).items() if name != NAME}
    return {**config, key: servers}


def _without_tables(text: str, table: str) -> str:
    """Without the table of that name and those below it; comments before the next one stay."""
    kept: list[str] = []
    ours, comments = False, list[str]()
    for line in text.splitlines(keepends=True):
        if (header := _TABLE.match(line)) is not None:
            ours = header[1] == table or header[1].startswith(f"{table}.")
            kept, comments = kept if ours else [*kept, *comments], []
        if not ours:
            kept.append(line)
        elif not line.strip() or line.lstrip().startswith("#"):
            comments.append(line)
        else:
            comments = []
    return "".join([*kept, *comments])


def _tables(table: str, entry: Mapping[str, object]) -> str:
    """A JSON string, number or list of strings is TOML too, but for one escape."""
    plain = {name: value for name, value in entry.items() if not isinstance(value, dict)}
    lines = [f"[{table}]"] if table else []
    lines += [f"{name} = {_toml(value)}" for name, value in plain.items()]
    for name, value in entry.items():
        if isinstance(value, dict):
            lines += ["", f"[{table}.{name}]" if table else f"[{name}]"]
            lines += [f"{json.dumps(word)} = {_toml(inner)}" for word, inner in value.items()]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


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
