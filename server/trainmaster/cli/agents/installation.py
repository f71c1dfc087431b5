"""Plans and writes what a client needs: its configuration, and the skills."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.cli.agents.client_files import with_server
from trainmaster.cli.agents.clients import CLIENTS, Client, Server
from trainmaster.cli.agents.placed_file import PlacedFile, ThroughLinkError
from trainmaster.errors.errors import UsageError
from trainmaster.home.assets import find_assets
from trainmaster.home.own_program import own_program
from trainmaster.home.paths import HOME_VARIABLE


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is to be written. `before`: its bytes today, None where there is none."""

    file: PlacedFile
    before: bytes | None
    after: bytes
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class Installation:
    """What connects a client; `changes` may be none."""

    client: Client
    config: Path
    skills: Sequence[Path]
    changes: Sequence[Change]


def plan_installation(
    name: str, server: Server, *, project: Path | None, user_home: Path
) -> Installation:
    """What connects the client of that name, for the user or in a project's folder.

    Raises:
        UsageError: `BAD_ARGUMENT` for an unknown client, or a link in a project;
            `AGENT_CONFIG_UNREADABLE`.
    """
    if (client := CLIENTS.get(name)) is None:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name!r} is not a known client.",
            f"Take one of: {', '.join(CLIENTS)}.",
        )
    root = user_home if project is None else project
    config = _placed(root, client.user_file if project is None else client.project_file, project)
    before = _read(config, project)
    changes = [Change(config, before, _configured(client, config, before, server), is_private=True)]
    skills = [] if client.skills is None else list(_skills(root, client.skills, project))
    changes = [change for change in [*changes, *skills] if change.before != change.after]
    depth = len(Path(root, client.skills or "").parts)
    folders = sorted({Path(*change.file.path.parts[: depth + 1]) for change in skills})
    return Installation(client, config.path, folders, changes)


def carry_out(installation: Installation) -> None:
    """Write it; each file is replaced as a whole, and keeps its permissions and owner.

    Raises:
        UsageError: `BAD_ARGUMENT`, a file can't be written.
    """
    for change in reversed(installation.changes):  # the skills are there once they are named
        try:
            change.file.replace(change.before, change.after, is_private=change.is_private)
        except OSError as error:
            path = change.file.path
            raise UsageError(
                "BAD_ARGUMENT",
                f"{error.filename or path} can't be written: {error.strerror or error}.",
                "Make it writable, or name a project's folder by --project.",
            ) from error


def _placed(root: Path, relative: str, project: Path | None) -> PlacedFile:
    """The file that is read and written. In the user's own home links lead to it, as managers of
    dotfiles have them; a project may come from somebody else, and its links lead nowhere."""
    try:
        if project is not None:
            return PlacedFile.below(project.resolve(strict=True), relative)
        resolved = (root / relative).resolve()
    except (OSError, RuntimeError) as error:
        raise _unreadable(root / relative, error) from error
    return PlacedFile(Path(resolved.anchor), resolved.parts[1:])


def _read(file: PlacedFile, project: Path | None) -> bytes | None:
    try:
        return file.read()
    except ThroughLinkError as error:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{error.filename} is a link, and nothing is written through a link of a project.",
            "Replace the link by a file or folder of its own, or leave out --project to install "
            "for yourself.",
            field="project" if project else None,
        ) from error
    except OSError as error:
        raise _unreadable(file.path, error) from error


def _configured(client: Client, config: PlacedFile, before: bytes | None, server: Server) -> bytes:
    try:
        text = (before or b"").decode()
    except UnicodeDecodeError as error:
        raise _unreadable(config.path, error) from error
    return with_server(client, config.path, text, client.entry(server)).encode()


def _unreadable(path: Path, error: Exception) -> UsageError:
    return UsageError(
        "AGENT_CONFIG_UNREADABLE",
        f"{path} can't be read: {getattr(error, 'strerror', None) or error}.",
        "Make it a readable text file, or name a project's folder by --project.",
    )


def own_server(arguments: Sequence[str], environment: Mapping[str, str]) -> Server:
    """This installation's own server: the program as a path, since agents have another PATH."""
    home = environment.get(HOME_VARIABLE)
    variables = {HOME_VARIABLE: os.path.abspath(home)} if home else {}
    program, *rest = own_program()
    return Server(program, [*rest, "mcp", *arguments], variables)


def _skills(root: Path, folder: str, project: Path | None) -> Iterator[Change]:
    source = find_assets().skills
    for path in sorted(source.rglob("*.md")):
        file = _placed(root, f"{folder}/{path.relative_to(source)}", project)
        yield Change(file, _read(file, project), path.read_bytes())
