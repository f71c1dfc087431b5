"""Plans and writes what a client needs: its configuration, and the skills."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.records import dataclass
from trainmaster.cli.agents.client_files import with_server
from trainmaster.cli.agents.clients import CLIENTS, Client, Server
from trainmaster.words.assets import find_assets
from trainmaster.words.errors import UsageError
from trainmaster.words.own_program import own_program
from trainmaster.words.paths import HOME_VARIABLE


@dataclass(frozen=True, slots=True)
class Installation:
    """What is to be written. `before` is the file's text today, None where there is none."""

    client: Client
    config: Path
    before: str | None
    after: str
    skills: Mapping[Path, bytes]

    @property
    def changes(self) -> bool:
        return self.before != self.after or any(
            not path.is_file() or path.read_bytes() != data for path, data in self.skills.items()
        )


def plan_installation(
    name: str, server: Server, *, project: Path | None, user_home: Path
) -> Installation:
    """What connects the client of that name, for the user or in a project's folder.

    Raises:
        UsageError: `BAD_ARGUMENT` for an unknown client, or a project whose links lead out of it;
            `AGENT_CONFIG_UNREADABLE`.
    """
    if (client := CLIENTS.get(name)) is None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name!r} is not a known client.",
            f"Take one of: {', '.join(CLIENTS)}.",
        )
    folder, file = (
        (user_home, client.user_file) if project is None else (project, client.project_file)
    )
    config = (folder / file).resolve()  # a link stays a link
    if project is not None:
        _refuse_outside(project, [config, *([folder / client.skills] if client.skills else [])])
    before = _text(config)
    after = with_server(client, config, before or "", client.entry(server))
    skills = {} if client.skills is None else _skills(folder / client.skills)
    return Installation(client, config, before, after, skills)


def carry_out(installation: Installation) -> None:
    """Write it; the configuration is replaced as a whole, with the permissions that it had.

    Raises:
        UsageError: `BAD_ARGUMENT`, a file can't be written.
    """
    config = installation.config
    try:
        for path, data in installation.skills.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data, 0o644)
        if installation.before != installation.after:
            config.parent.mkdir(parents=True, exist_ok=True)
            mode = config.stat().st_mode & 0o777 if config.exists() else 0o600
            write_atomic(config, installation.after.encode(), mode)
    except OSError as error:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{error.filename or config} can't be written: {error.strerror}.",
            "Make it writable, or name a project's folder by --project.",
        ) from error


def _refuse_outside(project: Path, places: Sequence[Path]) -> None:
    """A project may come from somebody else: its links would lead to the user's own files."""
    for place in places:
        if not place.resolve().is_relative_to(project.resolve()):
            raise UsageError(
                "BAD_ARGUMENT",
                f"{place} is outside of {project}: a link in the project leads there.",
                "Remove the link, or leave out --project to install for yourself.",
                field="project",
            )


def own_server(arguments: Sequence[str], environment: Mapping[str, str]) -> Server:
    """This installation's own server: the program as a path, since agents have another PATH."""
    home = environment.get(HOME_VARIABLE)
    variables = {HOME_VARIABLE: os.path.abspath(home)} if home else {}
    program, *rest = own_program()
    return Server(program, [*rest, "mcp", *arguments], variables)


def _text(config: Path) -> str | None:
    try:
        return config.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "AGENT_CONFIG_UNREADABLE",
            f"{config} can't be read: {error}.",
            "Make it a readable text file, or name a project's folder by --project.",
        ) from error


def _skills(folder: Path) -> dict[Path, bytes]:
    source = find_assets().skills
    return {
        folder / path.relative_to(source): path.read_bytes()
        for path in sorted(source.rglob("*.md"))
    }
