"""A destination that a person adds at a terminal: its entry in the settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.alerts.destination_kinds import kind_of_web_host
from trainer_runtime.core.files.durable import write_atomic
from trainmaster.alerts.destinations import destinations, is_address
from trainmaster.errors.errors import SpecError, StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import Settings
from trainmaster.settings.yaml12 import load_yaml

_OTHERS = "command:PROGRAM ARGUMENTS, or https://ADDRESS"
_COMMAND = "command:"
# The text of a message, as the JSON on standard input has it.
_TEXT = r"""sed -n 's/.*"text": *"\([^"]*\)".*/\1/p'"""
# A timer of cron knows no session: its bus lies where systemd puts it.
_ADDRESS = "${DBUS_SESSION_BUS_ADDRESS:-unix:path=/run/user/$(id -u)/bus}"
_BUS = f'export DBUS_SESSION_BUS_ADDRESS="{_ADDRESS}"; '
_DESKTOPS = {
    "notify-send": f'{_BUS}notify-send Trainmaster "$({_TEXT})"',
    "osascript": "osascript -e 'on run argv' -e 'display notification (item 1 of argv) with title "
    f'"Trainmaster"\' -e \'end run\' "$({_TEXT})"',
}
_BLOCK = re.compile(r"^destinations:[ \t]*(?:#.*)?\n(?=( +)\S)", re.MULTILINE)
_FLOW = re.compile(r"^destinations:[ \t]*\{", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NewDestination:
    """Its name, and its entry in the settings."""

    name: str
    entry: Mapping[str, Any]

    @property
    def line(self) -> str:
        """The entry in YAML."""
        return f"{self.name}: {json.dumps(dict(self.entry), ensure_ascii=False)}"


def new_destination(to: str) -> NewDestination | None:
    """What `--to` describes; None for a name of the settings.

    Raises:
        UsageError: `DESTINATION_UNKNOWN`, the program or a desktop is missing.
    """
    if to == "desktop":
        return NewDestination("desktop", {"kind": "command", "command": _of_desktop()})
    if to.startswith(_COMMAND):
        words = _words(to.removeprefix(_COMMAND))
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", words[0].rsplit("/", 1)[-1]).strip("-_")[:32]
        return NewDestination(name or "command", {"kind": "command", "command": words})
    if is_address(to):
        host = to.split("/")[2].rpartition("@")[2].partition(":")[0]
        kind = kind_of_web_host(host)
        name = kind if kind != "webhook" else re.sub(r"[^A-Za-z0-9_-]+", "-", host)[:32]
        return NewDestination(name, {"kind": kind, "url": to})
    return None


def add_destination(home: Home, new: NewDestination) -> None:
    """Write it into the settings, which keep every other byte.

    Raises:
        StateError: `SETTINGS_NOT_READABLE`, they name another one so, or their shape takes no line.
    """
    if new.name in destinations(home):
        named = destinations(home)[new.name].model_dump(exclude_none=True, exclude={"defaults"})
        if named == dict(new.entry):
            return
        raise _by_hand(home, new, f"names another destination {new.name}")
    text = home.settings.read_text(encoding="utf-8-sig") if home.settings.exists() else ""
    changed = _with_line(text, new.line)
    before = load_yaml(text) or {}
    try:
        after = load_yaml(changed)
        Settings.model_validate(after)
    except (SpecError, ValueError) as error:
        raise _by_hand(home, new, "can't take another line") from error
    listed = {**(before.get("destinations") or {}), new.name: dict(new.entry)}
    if after != {**before, "destinations": listed}:
        raise _by_hand(home, new, "can't take another line")
    write_atomic(Path(os.path.realpath(home.settings)), changed.encode())


def _with_line(text: str, line: str) -> str:
    if (block := _BLOCK.search(text)) is not None:
        return f"{text[: block.end()]}{block[1]}{line}\n{text[block.end() :]}"
    if (flow := _FLOW.search(text)) is not None:
        return f"{text[: flow.end()]}{line}, {text[flow.end() :]}"
    ended = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{ended}destinations:\n  {line}\n"


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if words and shutil.which(words[0]) is not None:
        return words
    raise UsageError(
        "DESTINATION_UNKNOWN",
        f"{text[:80]!r} names no program of this machine.",
        "Write for example `command:/usr/local/bin/page --now`: it gets the message as JSON on "
        "standard input.",
        field="to",
    )


def _of_desktop() -> list[str]:
    program = next((name for name in _DESKTOPS if shutil.which(name)), None)
    if program is None:
        raise UsageError(
            "DESTINATION_UNKNOWN",
            f"This machine has none of {', '.join(_DESKTOPS)}, which show a message on a desktop.",
            "Install libnotify (Debian: `apt-get install libnotify-bin`), or name another "
            f"destination: {_OTHERS}.",
            field="to",
        )
    return ["sh", "-c", _DESKTOPS[program]]


def _by_hand(home: Home, new: NewDestination, why: str) -> StateError:
    return StateError(
        "SETTINGS_NOT_READABLE",
        f"{home.settings} {why}; nothing was written.",
        f"Add by an editor, below `destinations:`, {new.line}",
        field="to",
    )
