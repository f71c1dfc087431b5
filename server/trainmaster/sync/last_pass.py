"""How current the records of a host's runs are, and who has asked for newer ones."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainmaster.errors.errors import HostError
from trainmaster.home.paths import Home

# Clocks are compared to a second; what a reply takes on its way varies by less than this.
_SAME_SKEW_S = 0.05


@dataclass(frozen=True, slots=True)
class LastPass:
    """How current the records of a host's runs are.

    `t`: when the newest pass over them began (Unix seconds), also one that failed. `skew_s`: how
    far the host's clock is ahead of the client's. `error`: code and message where the pass failed.
    """

    t: float = 0.0
    skew_s: float = 0.0
    error: tuple[str, str] | None = None


def last_pass(home: Home, host: str) -> LastPass:
    """The newest pass over a host's runs, whichever process made it."""
    try:
        path = home.follower_pass(host)
        with path.open("rb") as file:
            t = os.fstat(file.fileno()).st_mtime
            row = decode_fields(file.read(), path.name)
        error = row.find_section("error")
        return LastPass(
            t=t,
            skew_s=row.number("skew_s", 0.0),
            error=(error.text("code"), error.text("message")) if error else None,
        )
    except (OSError, DecodingError):
        return LastPass()


def record_pass(
    home: Home, host: str, *, t: float, skew_s: float | None = None, error: HostError | None = None
) -> None:
    """Record a pass that began at `t`; the known skew stays where none is given.

    The time is the file's, which is rewritten only where there is something else to say: several
    passes a second are recorded.
    """
    last = last_pass(home, host)
    skew_s = last.skew_s if skew_s is None else skew_s
    described = None if error is None else (error.code, error.message)
    path = home.follower_pass(host)
    with suppress(OSError):  # a full disk: waiting processes wait a little longer
        if last.t and last.error == described and abs(last.skew_s - skew_s) < _SAME_SKEW_S:
            os.utime(path, (t, t))
            return
        row = {
            "skew_s": round(skew_s, 3),
            "error": {"code": error.code, "message": error.message} if error else None,
        }
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(row))
        os.utime(temporary, (t, t))
        os.replace(temporary, path)


def record_unreachable(home: Home, host: str, error: HostError) -> None:
    """Record a failed attempt to reach the host, and its error."""
    record_pass(home, host, t=time.time(), error=error)


def ask_for_pass(home: Home, host: str, t: float) -> None:
    """Ask the process that follows the host to ingest everything that it copies after `t`."""
    path = home.follower_asked(host)
    with suppress(OSError):  # else its next regular time has to do
        if asked_t(home, host) < t:
            path.touch()
            os.utime(path, (t, t))


def asked_t(home: Home, host: str) -> float:
    """Since when the newest request waits; 0 where there was none."""
    try:
        return os.stat(home.follower_asked(host)).st_mtime
    except OSError:
        return 0.0
