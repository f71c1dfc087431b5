"""The files of a run's folder on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import (
    Failure,
    RuntimeCall,
    runtime_call,
    runtime_lines,
)

if TYPE_CHECKING:
    from trainer_runtime.core.files.checkpoint_check import CheckpointCheck
    from trainer_runtime.core.files.listing import LeftOut, ListedFile

_LIST_TIMEOUT_S = 300.0
_VERIFY_TIMEOUT_S = 3600.0


async def list_files(host: Host, folder: str, pattern: str) -> list[ListedFile | LeftOut]:
    """The files of a run's folder that match a pattern.

    Raises:
        HostError: no usable answer.
    """
    from trainer_runtime.core.files.listing import parse_listed

    call = _call(host, "files", folder, pattern)
    return await runtime_lines(host, call, parse_listed)


async def chunk_digest(
    host: Host, folder: str, path: str, chunk: int, size_bytes: int
) -> str | None:
    """The sha256 of a chunk of the first `size_bytes` of a file; None where it has less.

    Raises:
        HostError: no usable answer.
    """
    call = _call(host, "digest", folder, path, str(chunk), str(size_bytes))
    return await runtime_call(host, call, _digest)


async def verify_checkpoints(host: Host, folder: str) -> list[CheckpointCheck]:
    """Read every byte of every checkpoint of a run, by the runtime that the run has.

    Raises:
        HostError: no usable answer.
    """
    failure = Failure(
        f"The checkpoints on {host.name} could not be read",
        "Run `python3 -m trainer_runtime verify .` in the run's folder by hand.",
    )
    call = RuntimeCall("verify", ["."], failure, _VERIFY_TIMEOUT_S, folder=folder)
    return await runtime_call(host, call, _checks)


def _call(host: Host, verb: str, folder: str, *arguments: str) -> RuntimeCall:
    failure = Failure(
        f"The files in {folder} on {host.name} could not be listed",
        f"Check that folder; {command('doctor')} checks the host.",
    )
    return RuntimeCall(verb, ["--", folder, *arguments], failure, _LIST_TIMEOUT_S)


def _digest(answer: Fields) -> str | None:
    return answer.find_text("sha256")


def _checks(answer: Fields) -> list[CheckpointCheck]:
    from trainer_runtime.core.files.checkpoint_check import CheckpointCheck

    return [CheckpointCheck.of(item) for item in answer.sections("checkpoints")]
