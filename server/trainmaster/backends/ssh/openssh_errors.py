"""Why the system's ssh did not connect, by its messages (LC_ALL=C)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Cause = Literal["key_changed", "authentication_refused", "no_common_algorithm", "unreachable"]

_CHANGED = re.compile(
    r"fingerprint for the (\S+) key sent by the remote host is\s+(SHA256:[\w+/]+)"
)
_SIGNS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (
        "key_changed",
        re.compile(r"HOST IDENTIFICATION HAS CHANGED|host key is known for|Host key veri"),
    ),
    (
        "authentication_refused",
        re.compile(r"Permission denied|Too many authentication failures|No more auth"),
    ),
    ("no_common_algorithm", re.compile(r"Unable to negotiate with")),
)
_BEYOND = re.compile(r"open failed: (?:connect failed: )?(.+)")
# ssh's messages before it gives up; after others it continues.
_GIVEN_UP = re.compile(
    r"^(?:ssh: |kex_exchange_identification|ssh_dispatch_run_fatal|banner exchange|Timeout|"
    r"Connection (?:closed|reset|timed out)|Received disconnect|Disconnected from)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """`place`: the index of the hop; `kind` and `fingerprint`: of the key that it presented, None
    if ssh did not log them."""

    cause: Cause
    place: int
    reason: str
    kind: str | None = None
    fingerprint: str | None = None


def find_failure(logs: Sequence[str], said: str) -> Failure:
    """The failure in ssh's logs of the hops, in order, and in its standard error `said`.

    The first hop with a failure counts; later ones are consequences.
    """
    for place, log in enumerate(logs):
        for cause, sign in _SIGNS:
            if sign.search(log):
                return _failure(cause, place, log)
        beyond = _BEYOND.search(log)
        if beyond and place + 1 < len(logs):
            return Failure("unreachable", place + 1, beyond[1].strip())
        if _GIVEN_UP.search(log):
            return _failure("unreachable", place, log)
    return _failure("unreachable", len(logs) - 1, logs[-1] or said)


def _failure(cause: Cause, place: int, log: str) -> Failure:
    shown = _CHANGED.search(log)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    reason = lines[-1].removeprefix("ssh: ") if lines else ""
    return Failure(cause, place, reason, *(shown.groups() if shown else ()))
