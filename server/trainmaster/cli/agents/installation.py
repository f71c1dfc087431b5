"""Plans and writes what a client needs: its configuration, and the skills."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainer_runtime.core.files.private import share
from trainer_runtime.core.files.regular import READING, read_opened
from trainmaster.cli.agents.client_files import with_server
from trainmaster.cli.agents.clients import CLIENTS, Client, Server
from trainmaster.errors.errors import UsageError
from trainmaster.home.assets import find_assets
from trainmaster.home.own_program import own_program
from trainmaster.home.paths import HOME_VARIABLE

_LARGEST_BYTES = 64 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o7777


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


class ThroughLinkError(OSError):
    """A folder or file below the root is a link."""


class ChangedError(OSError):
    """Somebody wrote the file meanwhile."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """`parts`: its folders below `root`, and its name. Links are followed up to the root alone."""

    root: Path
    parts: tuple[str, ...]

    @classmethod
    def below(cls, root: Path, relative: str) -> PlacedFile:
        return cls(root, Path(relative).parts)

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    def read(self) -> bytes | None:
        """The whole file; None where there is none.

        Raises:
            OSError: it can't be read, is not a regular file, too large, or behind a link.
        """
        try:
            with self._folder(makes=False) as folder, _no_link(folder, self.path):
                descriptor = os.open(self.parts[-1], READING | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            return None
        data = read_opened(descriptor, _LARGEST_BYTES)
        if len(data) > _LARGEST_BYTES:
            raise OSError(errno.EFBIG, "it is larger than such a file can be", str(self.path))
        return data

    def replace(self, before: bytes | None, data: bytes, *, is_private: bool) -> None:
        """Write `data` in place of `before`, wholly or not at all.

        It keeps its permissions, owner and group. A new one is its owner's alone, or `is_private`
        is false and the user's umask decides.

        Raises:
            ChangedError: the file is not what `before` has any more.
            OSError: it can't be written, or is behind a link.
        """
        with self._folder(makes=True) as folder:
            name, temporary = self.parts[-1], f".{self.parts[-1]}.{secrets.token_hex(4)}"
            descriptor = os.open(temporary, _NEW, 0o600, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    _take_permissions(file.fileno(), name, folder, is_private=is_private)
                    file.flush()
                    os.fsync(file.fileno())
                if self.read() != before:
                    raise ChangedError(errno.EAGAIN, "it was changed meanwhile", str(self.path))
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            os.fsync(folder)

    @contextmanager
    def _folder(self, *, makes: bool) -> Iterator[int]:
        """A descriptor of its folder, opened from the root on, part by part."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            path = self.root
            for part in self.parts[:-1]:
                path /= part
                with _no_link(descriptor, path):
                    inner = _opened_folder(part, descriptor, makes=makes)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _opened_folder(name: str, parent: int, *, makes: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not makes:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        made = os.open(name, _FOLDER, dir_fd=parent)
        share(made)
        return made
    return os.open(name, _FOLDER, dir_fd=parent)


def _take_permissions(descriptor: int, name: str, folder: int, *, is_private: bool) -> None:
    """Those of the file that is there, or those of a new one."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if not is_private:
            os.fchmod(descriptor, 0o644)
            share(descriptor)
        return
    if not stat.S_ISREG(status.st_mode):
        return
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, status.st_mode & _PERMISSIONS)  # after the owner, which clears bits


@contextmanager
def _no_link(folder: int, path: Path) -> Iterator[None]:
    """Raises:
    ThroughLinkError: what could not be opened is a link.
    """
    try:
        yield
    except OSError as error:
        if _is_link(folder, path.name):
            raise ThroughLinkError(errno.ELOOP, "it is a link", str(path)) from None
        raise type(error)(error.errno, error.strerror, str(path)) from None


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
