"""A client's configuration with our server in it: everything else stays as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomllib

from trainmaster.cli.agents.clients import NAME, Client
from trainmaster.words.errors import UsageError

_INDENT = re.compile(r"^(\s+)\S", re.MULTILINE)


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
    except (ValueError, TypeError) as error:
        raise UsageError(
            "AGENT_CONFIG_UNREADABLE",
            f"{path} can't be changed safely: {error}.",
            f"Add by hand below {client.key!r}: {json.dumps({NAME: dict(entry)})}",
        ) from error


def _json_with(text: str, key: str, entry: Mapping[str, object]) -> str:
    config = json.loads(text) if text.strip() else {}
    if not isinstance(config, dict) or not isinstance(config.get(key, {}), dict):
        raise TypeError(f"it holds no JSON object with {key!r}")
    config[key] = {**config.get(key, {}), NAME: dict(entry)}
    indent = _INDENT.search(text)
    return json.dumps(config, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _toml_with(text: str, key: str, entry: Mapping[str, object]) -> str:
    """Appends our tables, instead of the older ones; comments and order of the others stay."""
    others = _without_server(tomllib.loads(text), key)
    kept = _without_tables(text, f"{key}.{NAME}").rstrip()
    written = (kept + "\n\n" if kept else "") + _tables(f"{key}.{NAME}", entry)
    after = tomllib.loads(written)
    if _without_server(after, key) != others or after[key][NAME] != dict(entry):
        raise ValueError("our server stands there in a form that is not recognised")
    return written


def _without_server(config: dict[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(config.get(key, {}), dict):
        raise TypeError(f"{key!r} is not a table")
    servers = {name: value for name, value in config.get(key, {}).items() if name != NAME}
    return {**config, key: servers}


def _without_tables(text: str, table: str) -> str:
    """Without the table of that name and those below it."""
    kept, ours = [], False
    for line in text.splitlines(keepends=True):
        if (header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)) is not None:
            ours = header[1] == table or header[1].startswith(f"{table}.")
        if not ours:
            kept.append(line)
    return "".join(kept)


def _tables(table: str, entry: Mapping[str, object]) -> str:
    """A JSON string, number or list of strings is TOML too, but for one escape."""
    plain = {name: value for name, value in entry.items() if not isinstance(value, dict)}
    lines = [f"[{table}]", *(f"{name} = {_toml(value)}" for name, value in plain.items())]
    for name, value in entry.items():
        if isinstance(value, dict):
            lines += ["", f"[{table}.{name}]"]
            lines += [f"{json.dumps(word)} = {_toml(inner)}" for word, inner in value.items()]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
