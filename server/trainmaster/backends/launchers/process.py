"""The supervisor as a detached process of the host."""

from __future__ import annotations

from trainer_runtime.core.answers.supervisor import SupervisorAnswer
from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainmaster.backends.hosts import Host
from trainmaster.words.errors import HostError

_TIMEOUT_S = 30.0


class ProcessLauncher:
    name = "process"

    async def ensure_supervisor(self, host: Host, folder: str) -> bool:
        done = await host.run(
            [await host.python(), "-m", "trainer_runtime", "start", "."],
            folder=folder,
            timeout_s=_TIMEOUT_S,
        )
        try:
            answer = SupervisorAnswer.of(decode_fields(done.output, "start"))
        except DecodingError:
            told = (done.errors or done.output).strip()[-500:]
            answer = SupervisorAnswer(started=False, error=told)
        if answer.error is not None:
            raise HostError(
                "SUPERVISOR_DID_NOT_START",
                f"The supervisor on {host.name} did not start: {answer.error}",
                f"Look into logs/supervisor.err in {folder}; `trainmaster doctor` checks the host.",
                retryable=True,
            )
        return answer.started
