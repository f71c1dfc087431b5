"""`mcp-tokens.json` in the home: who may use the MCP server over HTTP, and in which role.

Of a token only its SHA-256 is kept. Tokens have 256 random bits, so that a slow hash would add
nothing. A server reads the file again once it has changed: what was removed counts no more.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import StorageError, UsageError
from trainmaster.home.paths import Home
from trainmaster.settings.roles import ROLES, Role

# What a token begins with, for people and for programs that search for secrets.
PREFIX = "tmk_"
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class AccessToken:
    """`sha256`: of the token's text, in hex. Times are seconds since the epoch; `expires_t` None:
    it counts until it is removed."""

    name: str
    role: Role
    sha256: str
    created_t: float
    expires_t: float | None = None


def add_token(
    home: Home, name: str, role: Role, *, now: float, expires_t: float | None = None
) -> str:
    """Put a token on record; its text, which nobody can find out again.

    Raises:
        UsageError: `BAD_ARGUMENT`, the name; `TOKEN_EXISTS`.
        StorageError: `TOKENS_NOT_READABLE`.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            "BAD_ARGUMENT",
            f"A token can't be named {name[:80]!r}.",
            "Use at most 64 letters, digits and `. _ @ -`, such as the user's name.",
            field="name",
        )
    text = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    with _changing(home):
        tokens = read_tokens(home)
        if any(token_record.name == name for token_record in tokens):
            raise UsageError(
                "TOKEN_EXISTS",
                f"There is a token {name!r} already.",
                f"Choose another name, or run {command('mcp-tokens remove', name)} first.",
                field="name",
            )
        _write(home, [*tokens, AccessToken(name, role, _digest(text), now, expires_t)])
    return text


def remove_token(home: Home, name: str) -> None:
    """Forget a token: a running server refuses it from the next request on.

    Raises:
        UsageError: `TOKEN_UNKNOWN`.
        StorageError: `TOKENS_NOT_READABLE`.
    """
    with _changing(home):
        tokens = read_tokens(home)
        left = [token for token in tokens if token.name != name]
        if len(left) == len(tokens):
            names = ", ".join(token.name for token in tokens) or "none"
            raise UsageError(
                "TOKEN_UNKNOWN",
                f"No token has the name {name[:80]!r}.",
                f"There are: {names}. See {command('mcp-tokens')}.",
                field="name",
            )
        _write(home, left)


def read_tokens(home: Home) -> list[AccessToken]:
    """The tokens on record, the expired ones too; none without a file.

    Raises:
        StorageError: `TOKENS_NOT_READABLE`; also where others may read or write the file.
    """
    path = home.access_tokens
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(home, str(error.strerror), "Make it readable.") from error
    if mode & _OTHERS:
        raise _unreadable(home, "other users have access to it", f"Run: chmod 600 {path}")
    try:
        return [_token(row) for row in json.loads(data)["tokens"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        fix = f"Remove it and add the tokens again with {command('mcp-tokens add', 'NAME')}."
        raise _unreadable(home, "it is not a list of tokens", fix) from error


class KnownTokens:
    """The tokens of a home as they are now."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stamp: object = None
        self._tokens: list[AccessToken] = []

    def find(self, text: str, now: float) -> AccessToken | None:
        """The token with this text; None for one that is unknown, removed or expired.

        Raises:
            StorageError: `TOKENS_NOT_READABLE`.
        """
        record = self._on_record(text)
        if record is None or (record.expires_t is not None and record.expires_t <= now):
            return None
        return record

    def holds(self, text: str) -> bool:
        """Whether it is a token's text, be it expired.

        Raises:
            StorageError: `TOKENS_NOT_READABLE`.
        """
        return self._on_record(text) is not None

    def _on_record(self, text: str) -> AccessToken | None:
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._tokens = read_tokens(self._home)
            self._stamp = stamp
        digest = _digest(text)
        # Each is compared, in constant time: how long it takes says nothing.
        same = [token for token in self._tokens if hmac.compare_digest(token.sha256, digest)]
        return same[0] if same else None

    def _stamp_now(self) -> object:
        try:
            status = self._home.access_tokens.stat()
        except OSError:
            return None
        return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)


@contextmanager
def _changing(home: Home) -> Iterator[None]:
    lock = os.open(home.access_tokens.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(home: Home, tokens: Sequence[AccessToken]) -> None:
    data = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=1)
    write_atomic(home.access_tokens, f"{data}\n".encode())


def _token(row: dict[str, object]) -> AccessToken:
    """Raises: ValueError, TypeError, KeyError."""
    name, role, digest = row["name"], row["role"], row["sha256"]
    expires_t = row.get("expires_t")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("a name")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or role not in ROLES:
        raise ValueError("a digest or role")
    expires_t = None if expires_t is None else float(str(expires_t))
    return AccessToken(name, role, digest, float(str(row["created_t"])), expires_t)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _unreadable(home: Home, reason: str, fix: str) -> StorageError:
    return StorageError(
        "TOKENS_NOT_READABLE", f"{home.access_tokens} can't be used: {reason}.", fix
    )
