"""Why a machine would not read or write a file: the same words whatever the transport."""

from __future__ import annotations

from trainer_runtime.core.protocol.text import shown
from trainmaster.words.errors import HostError

_FULL = ("no space left", "quota exceeded", "quota has been exceeded")


def not_written(host: str, path: str, told: str) -> HostError:
    """The error for a file that can't be written; `told`: the machine's own, English words."""
    if any(sign in told.lower() for sign in _FULL):
        return HostError(
            "DISK_FULL",
            f"There is no room left on {host} to write {path}.",
            "Free some room there, or add the host again with another --root.",
            retryable=True,
        )
    return HostError(
        "ROOT_NOT_WRITABLE",
        f"{path} on {host} can't be written: {_one_line(told)}.",
        f"Make the folder writable for the user of {host}, or name another --root.",
    )


def not_read(host: str, path: str, told: str) -> HostError:
    return HostError(
        "ROOT_NOT_WRITABLE",
        f"{path} on {host} can't be read: {_one_line(told)}.",
        f"Make it readable for the user of {host}.",
    )


def _one_line(told: str) -> str:
    return shown(" ".join(told.split()).encode())[-300:].rstrip(". ") or "no reason was given"
