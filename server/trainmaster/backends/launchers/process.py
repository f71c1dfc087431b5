"""The supervisor as a detached process of the host."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainer_runtime.core.answers.supervisor import SupervisorAnswer
from trainer_runtime.core.decoding import Fields
from trainmaster.backends.hosts import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call

_TIMEOUT_S = 30.0


class ProcessLauncher:
    name = "process"

    async def ensure_supervisor(self, host: Host, folder: str) -> bool:
        failure = Failure(
            f"The supervisor on {host.name} did not start",
            f"Read logs/supervisor.err in {folder}; `trainmaster doctor` checks the host.",
            code="SUPERVISOR_DID_NOT_START",
        )
        call = RuntimeCall("start", ["."], failure, _TIMEOUT_S, folder=folder, acts=True)
        return (await runtime_call(host, call, SupervisorAnswer.of)).started

    async def supervised(self, host: Host, folders: Sequence[str]) -> frozenset[str]:
        failure = Failure(
            f"The supervisors on {host.name} could not be listed",
            f"`trainmaster hosts check {host.name}` finds the cause.",
        )
        asked = json.dumps({"folders": list(folders)}).encode()
        call = RuntimeCall("supervised", [], failure, _TIMEOUT_S, stdin=asked, acts=True)

        def living(answer: Fields) -> frozenset[str]:
            return frozenset(folders[at] for at in answer.integers("supervised"))

        return await runtime_call(host, call, living)
