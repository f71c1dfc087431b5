"""Where each agent's program reads its MCP servers and skills.

The paths and keys are those of the programs' own documentation, of November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

NAME = "trainmaster"


@dataclass(frozen=True, slots=True)
class Server:
    """How a client starts the MCP server. `command`: an absolute path, or a name on the PATH."""

    command: str
    arguments: Sequence[str]
    environment: Mapping[str, str]

    def entry(self) -> dict[str, object]:
        """The words that all clients share: `command`, `args`, `env`."""
        shared: dict[str, object] = {"command": self.command, "args": list(self.arguments)}
        return shared | ({"env": dict(self.environment)} if self.environment else {})


@dataclass(frozen=True, slots=True)
class Client:
    """A program that agents run in.

    `user_file` is relative to the user's home, `project_file` to a project's folder; `key` names
    the table of servers; `extra` are fields that only this client wants. `skills` is the folder of
    skills below home or project, None where the program reads none.
    """

    name: str
    title: str
    user_file: str
    project_file: str
    key: str
    format: Literal["json", "toml"] = "json"
    extra: Mapping[str, object] | None = None
    skills: str | None = None

    def entry(self, server: Server) -> dict[str, object]:
        return {**(self.extra or {}), **server.entry()}


CLIENTS = {
    client.name: client
    for client in (
        Client(
            name="claude-code",
            title="Claude Code",
            user_file=".claude.json",
            project_file=".mcp.json",
            key="mcpServers",
            extra={"type": "stdio"},
            skills=".claude/skills",
        ),
        Client(
            name="codex",
            title="Codex",
            user_file=".codex/config.toml",
            project_file=".codex/config.toml",
            key="mcp_servers",
            format="toml",
            # A wait answers within 40 s, a launch may take longer; Codex gives up after 60 s.
            extra={"startup_timeout_sec": 30, "tool_timeout_sec": 300},
        ),
        Client(
            name="cursor",
            title="Cursor",
            user_file=".cursor/mcp.json",
            project_file=".cursor/mcp.json",
            key="mcpServers",
        ),
        Client(
            name="vscode",
            title="VS Code",
            user_file=".config/Code/User/mcp.json",
            project_file=".vscode/mcp.json",
            key="servers",
            extra={"type": "stdio"},
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            user_file=".gemini/settings.json",
            project_file=".gemini/settings.json",
            key="mcpServers",
        ),
    )
}
