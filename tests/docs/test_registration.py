"""What clients and the registry read of this repository: the plugin, and `server.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer_runtime import __version__
from trainmaster.cli.command_table import LISTED

_ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> Any:
    return json.loads((_ROOT / name).read_text())


def test_every_file_has_the_version_of_the_release() -> None:
    server = read("server.json")
    versions = [server["version"], *(one["version"] for one in server["packages"])]
    assert {*versions, read(".claude-plugin/plugin.json")["version"]} == {__version__}


def test_the_registry_starts_the_server_by_the_package() -> None:
    server = read("server.json")
    assert len(server["description"]) <= 100
    assert server["name"].count("/") == 1
    (package,) = server["packages"]
    started = [package["runtimeHint"], package["identifier"]]
    started += [argument["value"] for argument in package["packageArguments"]]
    plugin = read(".claude-plugin/plugin.json")["mcpServers"]["trainmaster"]
    assert started == [plugin["command"], *plugin["args"]] == ["uvx", "trainmaster", "mcp"]
    assert package["transport"] == {"type": "stdio"}


def test_monitors_have_the_fields_of_the_format_and_run_a_command_that_exists() -> None:
    commands = {listed.word for listed in LISTED}
    for monitor in read("monitors/monitors.json"):
        assert set(monitor) == {"name", "command", "description", "when"}
        assert monitor["when"] == "always"
        program, package, command, *_ = monitor["command"].split()
        assert (program, package) == ("uvx", "trainmaster")
        assert command in commands


def test_the_marketplace_offers_the_plugin_of_this_folder() -> None:
    market, plugin = read(".claude-plugin/marketplace.json"), read(".claude-plugin/plugin.json")
    (offered,) = market["plugins"]
    assert (offered["name"], offered["source"]) == (plugin["name"], "./")
    assert market["owner"]["name"]
