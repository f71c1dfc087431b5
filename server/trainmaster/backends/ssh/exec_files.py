"""Files through POSIX shell commands, for machines without SFTP."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Awaitable, Callable, Sequence

from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.ssh.shell import Captured
from trainmaster.errors.errors import HostError

_FULL = ("no space left", "quota exceeded", "quota has been exceeded")
Capture = Callable[[Sequence[str], bytes], Awaitable[Captured]]

_ABSENT = 3
_PLAIN_WORDS = "LC_ALL=C; export LC_ALL; "
# One line each: a script of several lines takes a slower path through a login shell (see shell.py).
# A broken connection resembles the end of the input, so a file is replaced only at full length.
# Without the check of `-d`, `mv` would move into a folder.
_PUT = (
    'umask 077; trap "rm -f \\"\\$1\\"" EXIT; '
    'if [ -d "$2" ]; then echo "it is a folder" >&2; exit 1; fi; '
    'cat > "$1" || exit 1; '
    'if [ $(wc -c < "$1") -ne "$3" ]; then echo "not all of it arrived" >&2; exit 1; fi; '
    'sync "$1" 2> /dev/null; chmod "$4" "$1" && mv -f "$1" "$2"'
)
_GET = (
    '[ -e "$1" ] || exit 3; if [ ! -f "$1" ]; then echo "it is not a file" >&2; exit 1; fi; '
    'exec < "$1" || exit 1; tail -c "+$2" 2> /dev/null | head -c "$3"'
)
_SIZE = '[ -e "$1" ] || exit 3; ls -dLn "$1"'
_NAMES = (
    '[ -d "$1" ] || exit 3; cd "$1" || exit 1; '
    'if [ ! -r . ]; then echo "permission denied" >&2; exit 1; fi; '
    "for name in * .[!.]* ..?*; do "
    'if [ -e "$name" ] || [ -L "$name" ]; then printf "%s\\0" "$name"; fi; done'
)


class ExecFiles:
    """`capture` runs a command with standard input; `host` is the name for messages."""

    def __init__(self, host: str, capture: Capture) -> None:
        self._host = host
        self._capture = capture

    async def put(self, path: str, data: bytes, mode: int) -> None:
        temporary = temporary_path(path)
        done = await self._sh(
            _PUT, _plain(temporary), _plain(path), str(len(data)), f"{mode:o}", stdin=data
        )
        if done.code != 0:
            raise not_written(self._host, path, _reason(done))

    async def get(self, path: str, offset: int, limit: int) -> bytes | None:
        done = await self._sh(_GET, _plain(path), str(offset + 1), str(limit))
        if done.code == _ABSENT:
            return None
        if done.code != 0:
            raise not_read(self._host, path, _reason(done))
        return done.output

    async def size(self, path: str) -> int | None:
        done = await self._sh(_SIZE, _plain(path))
        if done.code == _ABSENT:
            return None
        try:
            return int(done.output.split(None, 5)[4])
        except (IndexError, ValueError):
            raise not_read(self._host, path, _reason(done)) from None

    async def names(self, folder: str) -> list[str]:
        done = await self._sh(_NAMES, _plain(folder))
        if done.code == _ABSENT:
            return []
        if done.code != 0:
            raise not_read(self._host, folder, _reason(done))
        entries = done.output.split(b"\0")[:-1]
        return sorted(name.decode("utf-8", "surrogateescape") for name in entries)

    async def _sh(self, script: str, *arguments: str, stdin: bytes = b"") -> Captured:
        command = ["/bin/sh", "-c", f"{_PLAIN_WORDS}{script}", "sh", *arguments]
        return await self._capture(command, stdin)


def temporary_path(path: str) -> str:
    """A temporary path next to `path`, for a write and a rename."""
    return posixpath.join(posixpath.dirname(path), f".tm-{secrets.token_hex(6)}")


def _plain(path: str) -> str:
    """The path in a form that no program takes for an option."""
    return path if path.startswith("/") else f"./{path}"


def _reason(done: Captured) -> str:
    return done.errors.strip() or f"exit code {done.code}"


def not_written(host: str, path: str, reason: str) -> HostError:
    """The error for a file that can't be written; `reason`: the machine's message, in English."""
    if any(sign in reason.lower() for sign in _FULL):
        return HostError(
            "DISK_FULL",
            f"The disk of {host} is full: {path} can't be written.",
            f"Free space there, or add the host again with another {option('--root')}.",
            retryable=True,
        )
    return HostError(
        "ROOT_NOT_WRITABLE",
        f"{path} on {host} can't be written: {_one_line(reason)}.",
        f"Make the folder writable for the user of {host}, or name another {option('--root')}.",
    )


def not_read(host: str, path: str, reason: str) -> HostError:
    return HostError(
        "ROOT_NOT_WRITABLE",
        f"{path} on {host} can't be read: {_one_line(reason)}.",
        f"Make it readable for the user of {host}.",
    )


def _one_line(reason: str) -> str:
    return shown(" ".join(reason.split()).encode())[-300:].rstrip(". ") or "no reason given"
