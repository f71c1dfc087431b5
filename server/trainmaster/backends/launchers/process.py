"""The supervisor as a detached process of the host."""

from __future__ import annotations

import json
import posixpath
import signal
from collections.abc import Mapping, Sequence

from trainer_runtime.core.answers.supervisor import SupervisorAnswer
from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call
from trainmaster.backends.launchers.launcher import Abilities, Job, JobState

_TIMEOUT_S = 30.0
_ABSENT, _RUNNING = Job(JobState.ABSENT), Job(JobState.RUNNING)


class ProcessLauncher:
    name = "process"
    abilities = Abilities(signals=True)

    async def submit(self, host: Host, folder: str) -> bool:
        failure = Failure(
            f"The supervisor on {host.name} did not start",
            f"Read {self.log_path(folder)}; {command('doctor')} checks the host.",
            code="SUPERVISOR_DID_NOT_START",
        )
        call = RuntimeCall("start", ["."], failure, _TIMEOUT_S, folder=folder, acts=True)
        return (await runtime_call(host, call, SupervisorAnswer.of)).started

    async def state(self, host: Host, folder: str) -> Job:
        return (await self.jobs(host, [folder])).get(folder, _ABSENT)

    async def jobs(self, host: Host, folders: Sequence[str]) -> Mapping[str, Job]:
        failure = Failure(
            f"The supervisors on {host.name} could not be listed",
            f"{command('hosts check', host.name)} finds the cause.",
        )
        asked = json.dumps({"folders": list(folders)}).encode()
        call = RuntimeCall("supervised", [], failure, _TIMEOUT_S, stdin=asked, acts=True)

        def living(answer: Fields) -> Mapping[str, Job]:
            return {folders[at]: _RUNNING for at in answer.integers("supervised")}

        return await runtime_call(host, call, living)

    def log_path(self, folder: str) -> str:
        return posixpath.join(folder, "logs", "supervisor.err")

    async def signal(self, host: Host, folder: str, number: signal.Signals) -> bool:
        return await self._end(host, folder, "signalled", ["--signal", number.name])

    async def cancel(self, host: Host, folder: str) -> bool:
        return await self._end(host, folder, "ended", [])

    async def _end(self, host: Host, folder: str, done: str, options: Sequence[str]) -> bool:
        failure = Failure(
            f"The supervisor of {folder} on {host.name} could not be {done}",
            f"{command('hosts check', host.name)} finds the cause.",
        )
        call = RuntimeCall("cancel", [*options, "--", folder], failure, _TIMEOUT_S, acts=True)
        return await runtime_call(host, call, lambda answer: answer.flag("found"))
