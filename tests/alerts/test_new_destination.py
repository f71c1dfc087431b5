"""A destination that a person adds at a terminal, and nobody else."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import anyio
import pytest
from support.host.pty import Terminal
from support.mcp.mcp_client import connected, error_of
from support.runs.running_run import CommandLine

from trainmaster.alerts.new_destination import add_destination, new_destination
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import read_settings
from trainmaster.settings.yaml12 import load_yaml

_ADD = ("alerts", "add", "--when", "state failed")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# mine\nmax_usd_h: 3\n",
        "destinations:\n    ops: {kind: slack, url: 'https://a.org/x'}  # kept\nmax_usd_h: 3\n",
        "destinations: {ops: {kind: webhook, url: 'https://example.org/x'}}\n",
        "max_usd_h: 3",
    ],
)
def test_the_settings_get_a_line_and_keep_the_rest(text: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.settings.write_text(text)
    new = new_destination(f"command:{shlex.quote(sys.executable)} -c pass")
    assert new is not None
    add_destination(home, new)
    add_destination(home, new)  # is there already
    written = home.settings.read_text()
    assert all(line in written for line in text.splitlines() if "{ops" not in line)
    before = load_yaml(text) or {}
    entry = {"kind": "command", "command": [sys.executable, "-c", "pass"]}
    listed = {**before.get("destinations", {}), new.name: entry}
    assert load_yaml(written) == {**before, "destinations": listed}
    assert read_settings(home).destinations[new.name].command == entry["command"]


def test_settings_whose_shape_takes_no_line_stay_as_they_are(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.settings.write_text("{max_usd_h: 3}\n")
    new = new_destination("https://hooks.slack.com/services/x")
    assert new is not None and new.entry["kind"] == "slack"
    with pytest.raises(StateError) as refused:
        add_destination(home, new)
    assert new.line in refused.value.fix
    assert home.settings.read_text() == "{max_usd_h: 3}\n"


def test_a_name_of_the_settings_is_no_new_destination() -> None:
    assert new_destination("ops") is None
    with pytest.raises(UsageError):
        new_destination("command:/nowhere/page")


def test_without_a_destination_the_way_to_one_is_shown(command: CommandLine) -> None:
    error = command(*_ADD, code=1)["error"]
    assert error["code"] == "DESTINATION_UNKNOWN"
    fix = error["fix"]
    assert "destinations: {ops: {kind: slack, url_secret: OPS_WEBHOOK}}" in fix
    assert "alerts add --when 'state failed' --to desktop`" in fix


def test_a_person_at_a_terminal_adds_one_and_is_asked_before(command: CommandLine) -> None:
    to = f"command:{shlex.quote(sys.executable)} -c pass"
    settings = Home(Path(command.environment["TRAINMASTER_HOME"])).settings
    with Terminal(command, *_ADD, "--to", to) as terminal:
        terminal.wait_for("Go ahead? [y/N]")
        assert not settings.exists()
        terminal.type("y\n")
        assert terminal.end() == 0, terminal.shown
    (name,) = load_yaml(settings.read_text())["destinations"]
    assert command("alerts", "test", name)["sent"] is True


def test_a_message_reaches_the_desktop_once_also_from_a_timer_without_a_session(
    command: CommandLine, tmp_path: Path
) -> None:
    shown, program = tmp_path / "shown", tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s|" "$DBUS_SESSION_BUS_ADDRESS" "$@" >> "{shown}"\n')
    program.chmod(0o755)
    command.environment["PATH"] = f"{program.parent}:{command.environment['PATH']}"
    command.environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
    with Terminal(command, *_ADD, "--to", "desktop") as terminal:
        terminal.wait_for("Go ahead? [y/N]")
        terminal.type("y\n")
        assert terminal.end() == 0, terminal.shown
    assert command("alerts", "test", "desktop")["sent"] is True
    text = "This is a test of the destination desktop. No run is concerned."
    bus = f"unix:path=/run/user/{os.getuid()}/bus"
    assert shown.read_text() == f"{bus}|Trainmaster|{text}|"
    rows = command("alerts", "list")["alerts"]
    assert [row["name"] for row in rows if row["when"] == "state failed"] == ["desktop-failed"]


def test_one_condition_is_sent_to_several_destinations(command: CommandLine) -> None:
    settings = Home(Path(command.environment["TRAINMASTER_HOME"])).settings
    entry = f"{{kind: command, command: [{json.dumps(sys.executable)}], defaults: false}}"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f"destinations: {{one: {entry}, other: {entry}}}\n")
    added = [command(*_ADD, "--to", to)["alert"]["name"] for to in ("one", "other")]
    assert added == ["state-failed", "state-failed-other"]
    assert command(*_ADD, "--to", "one", code=1)["error"]["code"] == "ALERT_EXISTS"


@pytest.mark.attack
def test_nobody_else_can_set_a_command(command: CommandLine) -> None:
    to = f"command:{shlex.quote(sys.executable)} -c pass"
    settings = Home(Path(command.environment["TRAINMASTER_HOME"])).settings
    error = command(*_ADD, "--to", to, code=1)["error"]  # no terminal
    assert json.dumps(sys.executable) in error["fix"]

    async def by_an_agent() -> str:
        async with connected(command.environment) as client:
            return await error_of(client, "create_alert", when="state failed", to=to)

    assert anyio.run(by_an_agent).startswith("DESTINATION_UNKNOWN: ")
    assert not settings.exists()
