"""Asking a machine what it has to offer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trainmaster.backends.hosts.host import Host
from trainmaster.words.errors import HostError

if TYPE_CHECKING:
    from trainmaster.plan.facts import HostFacts


async def examine_host(host: Host, python: str | None, *, timeout_s: float) -> HostFacts:
    """The machine's facts, as seen by `python`, the interpreter that is to train.

    Raises:
        HostError: `ENVIRONMENT_UNUSABLE` where that interpreter can't be run.
    """
    interpreter = python or await host.python()
    done = await host.run(
        [interpreter, "-m", "trainer_runtime", "facts", await host.root(), await host.cache()],
        folder=await host.runtime(),
        timeout_s=timeout_s,
    )
    from trainmaster.plan.facts import HostFacts  # with it comes all of planning

    try:
        return HostFacts.model_validate(json.loads(done.output))
    except ValueError as error:
        told = (done.errors or done.output).strip()[-300:] or f"exit code {done.code}"
        raise HostError(
            "ENVIRONMENT_UNUSABLE",
            f"{interpreter} on {host.name} can't run the training's side: {told}",
            "Set `environment: {python: PATH}` to a Python 3.10 or newer that has PyTorch.",
        ) from error
