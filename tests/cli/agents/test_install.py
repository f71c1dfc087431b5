"""`trainmaster install`: the clients' own files get our server, and nothing else changes."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import tomllib

from trainmaster.cli import run
from trainmaster.cli.agents.clients import CLIENTS
from trainmaster.cli.agents.installation import own_server

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("TRAINMASTER_HOME", str(tmp_path / "home"))
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def install(printed: Printed, *words: str) -> dict[str, Any]:
    run(["install", *words, "--json"])
    answer: dict[str, Any] = json.loads(printed.readouterr().out)
    return answer


def servers(client: str, config: Path) -> dict[str, Any]:
    text = config.read_text()
    parsed = tomllib.loads(text) if config.suffix == ".toml" else json.loads(text)
    found: dict[str, Any] = parsed[CLIENTS[client].key]
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_the_server_with_an_absolute_program_and_the_home(
    client: str, user_home: Path, capsys: Printed
) -> None:
    answer = install(capsys, client)
    config = user_home / CLIENTS[client].user_file
    assert (answer["config"], answer["changed"], answer["written"]) == (str(config), True, True)
    entry = servers(client, config)["trainmaster"]
    assert os.path.isabs(entry["command"])
    assert entry["args"][-1] == "mcp"
    assert entry["env"] == {"TRAINMASTER_HOME": os.environ["TRAINMASTER_HOME"]}
    assert stat.S_IMODE(config.stat().st_mode) == 0o600

    before = config.read_text()
    again = install(capsys, client)
    assert (again["changed"], again["written"], config.read_text()) == (False, False, before)


def test_claude_code_gets_the_skills_too(user_home: Path, capsys: Printed) -> None:
    answer = install(capsys, "claude-code")
    skills = user_home / ".claude/skills"
    assert answer["skills"] == sorted(str(folder) for folder in skills.iterdir())
    assert (skills / "training-runner/SKILL.md").read_text().startswith("---\nname: ")


def test_what_else_stands_in_a_json_file_stays_in_its_order_and_permissions(
    user_home: Path, capsys: Printed
) -> None:
    config = user_home / ".cursor/mcp.json"
    config.parent.mkdir()
    config.write_text('{\n    "zebra": 1,\n    "mcpServers": {"other": {"url": "https://é"}}\n}\n')
    config.chmod(0o640)
    install(capsys, "cursor", "--read-only")
    text = config.read_text()
    assert list(json.loads(text)) == ["zebra", "mcpServers"]
    assert servers("cursor", config)["other"] == {"url": "https://é"}
    assert servers("cursor", config)["trainmaster"]["args"][-2:] == ["mcp", "--read-only"]
    install(capsys, "cursor", "--toolsets", "operator,provision")
    arguments = servers("cursor", config)["trainmaster"]["args"]
    assert arguments[-3:] == ["mcp", "--toolsets", "operator,provision"]
    assert '\n    "zebra": 1' in text
    assert stat.S_IMODE(config.stat().st_mode) == 0o640


def test_an_older_entry_of_ours_is_replaced_and_comments_of_a_toml_file_stay(
    user_home: Path, capsys: Printed
) -> None:
    config = user_home / ".codex/config.toml"
    config.parent.mkdir()
    others = '# mine\nmodel = "x"  # not yours\n\n[mcp_servers.other]\ncommand = "y"\n'
    config.write_text(
        '[mcp_servers.trainmaster]\ncommand = "old"\n\n[mcp_servers.trainmaster.env]\nA = "1"\n'
        + others.replace("# mine\nmodel", "\n[profile]\n# mine\nmodel")
    )
    install(capsys, "codex")
    text = config.read_text()
    assert "# mine\n" in text
    assert "# not yours" in text
    assert servers("codex", config)["other"] == {"command": "y"}
    assert servers("codex", config)["trainmaster"]["command"] != "old"
    assert "A" not in servers("codex", config)["trainmaster"]["env"]


@pytest.mark.parametrize(
    ("client", "file", "text"),
    [
        ("cursor", ".cursor/mcp.json", "{ // a comment\n}"),
        ("cursor", ".cursor/mcp.json", "[]"),
        ("gemini", ".gemini/settings.json", '{"mcpServers": []}'),
        ("codex", ".codex/config.toml", "= broken"),
        ("codex", ".codex/config.toml", "mcp_servers = {trainmaster = {command = 'a'}}"),
        ("codex", ".codex/config.toml", "mcp_servers = 3"),
    ],
)
def test_a_file_that_is_not_understood_is_left_as_it_is_and_the_entry_shown(
    client: str, file: str, text: str, user_home: Path, capsys: Printed
) -> None:
    config = user_home / file
    config.parent.mkdir()
    config.write_text(text)
    error = install(capsys, client)["error"]
    assert error["code"] == "AGENT_CONFIG_UNREADABLE"
    assert str(config) in error["message"]
    assert '"command"' in error["fix"]
    assert config.read_text() == text


def test_a_dry_run_and_an_unknown_client_write_nothing(user_home: Path, capsys: Printed) -> None:
    dry = install(capsys, "vscode", "--dry-run")
    assert (dry["changed"], dry["written"]) == (True, False)
    assert install(capsys, "emacs")["error"]["code"] == "BAD_ARGUMENT"
    assert list(user_home.iterdir()) == []


def test_a_project_gets_a_file_of_its_own(tmp_path: Path, user_home: Path, capsys: Printed) -> None:
    project = tmp_path / "project"
    project.mkdir()
    install(capsys, "claude-code", "--project", str(project))
    assert "trainmaster" in servers("claude-code", project / ".mcp.json")
    assert (project / ".claude/skills/training-runner/SKILL.md").is_file()
    assert list(user_home.iterdir()) == []


def test_a_link_to_the_configuration_stays_a_link(user_home: Path, capsys: Printed) -> None:
    real = user_home / "dotfiles.json"
    real.write_text("{}")
    (user_home / ".claude.json").symlink_to(real)
    install(capsys, "claude-code")
    assert (user_home / ".claude.json").is_symlink()
    assert "trainmaster" in servers("claude-code", real)


def test_what_uvx_runs_is_started_by_uvx_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "uv/archive-v0/abc/bin/trainmaster"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    server = own_server(["--read-only"], {})
    assert [server.command, *server.arguments] == ["uvx", "trainmaster", "mcp", "--read-only"]
    assert server.entry() == {"command": "uvx", "args": ["trainmaster", "mcp", "--read-only"]}


def test_linked_skills_of_ones_own_are_written_where_they_are(
    user_home: Path, capsys: Printed
) -> None:
    dotfiles = user_home / "dotfiles"
    dotfiles.mkdir()
    (user_home / ".claude").symlink_to(dotfiles)
    install(capsys, "claude-code")
    assert (dotfiles / "skills/training-runner/SKILL.md").is_file()
    assert (user_home / ".claude").is_symlink()
