"""Trainings of a machine that others have started: running ones, and the output of any."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.lines import ExitCode
from trainmaster.backends.capabilities import OutputReader, SourceExaminer
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call

if TYPE_CHECKING:
    from trainer_runtime.core.files.foreign_output import FoundOutput

_SOURCE_TIMEOUT_S = 30.0
_OUTPUT_TIMEOUT_S = 3600.0
# A process that the kernel ended for its processor time, as its parent or a shell says it.
_OVER_ITS_LIMITS = (-signal.SIGXCPU, 128 + signal.SIGXCPU)


class HostedSources(OutputReader, SourceExaminer):
    """Trainings of others on `_host`."""

    _host: Host

    async def examine_source(
        self, kind: str, target: str, begin: str, pattern: str | None = None
    ) -> Mapping[str, Any]:
        taught = [] if pattern is None else ["--pattern", pattern]
        root = await self._host.root()
        arguments = ["--begin", begin, "--root", root, *taught, "--", kind, target]
        call = RuntimeCall("source", arguments, _unread(self._host, target), _SOURCE_TIMEOUT_S)
        return await runtime_call(
            self._host, call, lambda answer: _section(answer, "source").values
        )

    async def read_output(self, python: str | None, folder: str) -> FoundOutput:
        cache = [] if python else ["--cache", await self._host.cache()]
        call = RuntimeCall(
            "output",
            [*cache, "--", folder],
            _unread(self._host, folder),
            _OUTPUT_TIMEOUT_S,
            failures={
                ExitCode.UNUSABLE: _without_torch(self._host, python),
                **dict.fromkeys(_OVER_ITS_LIMITS, _endless(self._host, folder)),
            },
            python=python,
            acts=True,  # a step of adopting
        )
        return await runtime_call(self._host, call, _output)


def _output(answer: Fields) -> FoundOutput:
    from trainer_runtime.core.files.foreign_output import FoundOutput  # heavy

    return FoundOutput.of(_section(answer, "output"))


def _section(answer: Fields, name: str) -> Fields:
    section = answer.find_section(name)
    if section is None:
        raise answer.error(name, "is missing")
    return section


def _unread(host: Host, target: str) -> Failure:
    return Failure(
        f"{target} could not be read on {host.name}", f"{command('doctor')} checks the host."
    )


def _endless(host: Host, folder: str) -> Failure:
    return Failure(
        f"Reading {folder} on {host.name} took more time than files of its size can take",
        "Give a folder that only your training has written; a training's own checkpoints are read "
        "in seconds a gigabyte.",
        code="OUTPUT_UNKNOWN",
        retryable=False,
    )


def _without_torch(host: Host, python: str | None) -> Failure:
    who = f"{python} on {host.name} lacks" if python else f"no interpreter on {host.name} has"
    return Failure(
        f"Reading checkpoints takes PyTorch; {who} it",
        f"Name one that has it ({option('--python', 'PATH')}), or install it there "
        "(`pip install torch`).",
        code="ENVIRONMENT_UNUSABLE",
        retryable=False,
        field="python",
    )
