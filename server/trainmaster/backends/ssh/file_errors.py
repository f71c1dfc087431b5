"""File errors, with the same messages for all transports."""

from __future__ import annotations

from trainer_runtime.core.protocol.command import option
from trainer_runtime.core.protocol.text import shown
from trainmaster.errors.errors import HostError

_FULL = ("no space left", "quota exceeded", "quota has been exceeded")


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
