"""Reads a machine's facts: GPUs, memory, disks, software."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, RuntimeCall, runtime_call

if TYPE_CHECKING:
    from trainmaster.plan.facts import HostFacts


async def examine_host(host: Host, python: str | None, *, timeout_s: float) -> HostFacts:
    """The machine's facts, as seen by `python`, the interpreter that is to train.

    Raises:
        HostError: `ENVIRONMENT_UNUSABLE` where that interpreter can't be run.
    """
    from trainmaster.plan.facts import HostFacts  # imports all of planning

    interpreter = python or await host.python()
    failure = Failure(
        f"{interpreter} on {host.name} can't run the training's side",
        "Set `environment: {python: PATH}` to a Python 3.10 or newer that has PyTorch.",
        code="ENVIRONMENT_UNUSABLE",
        retryable=False,
    )
    arguments = [await host.root(), await host.cache()]
    call = RuntimeCall("facts", arguments, failure, timeout_s, python=interpreter)
    named = {"hostname": host.name}  # as the operator calls it, whatever it calls itself
    return await runtime_call(
        host, call, lambda answer: HostFacts.model_validate({**answer.values, **named})
    )
