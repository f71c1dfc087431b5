"""A client's configuration with our server in it: everything else stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomllib

from trainmaster.cli.agents.clients import NAME, Client
from trainmaster.cli.agents.json_text import with_entry
from trainmaster.errors.errors import UsageError

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
