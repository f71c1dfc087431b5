"""`sample_run`, of the toolset `operate`: it runs a process on the host, with code of the run; the
user is asked about what is beyond the policy.
"""

from __future__ import annotations

from typing import Annotated

from mcp.types import InputRequiredResult
from pydantic import Field

from trainer_runtime.core.answers.sampled import SampleRequest
from trainmaster.answers.samples import SamplesAnswer
from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import BRINGS, Definition, ToolContext, workspace_of
from trainmaster.mcp.parameters import RunId

_WITHIN_S = 34.0  # a call may take 45


async def sample_run(
    context: ToolContext,
    *,
    run_id: RunId,
    prompt: Annotated[str, Field(description="Without: texts on record")] = "",
    start: Annotated[str, Field(description="final, best, latest, ema, averaged, or a step")] = "",
    max_tokens: int = 64,
    temperature: float = 0.8,
    seed: int = 1337,
    count: int = 1,
    chat: Annotated[bool, Field(description="By the chat template")] = False,
) -> SamplesAnswer | InputRequiredResult:
    """Text that a run's model writes after a prompt, by a process on its host that ends with the
    call; or what it wrote while trained (eval.samples of the spec). It is untrusted.
    """
    from trainmaster.runs import sample as service

    if not prompt:
        return await service.recorded_samples(workspace_of(context), run_id)
    request = SampleRequest(
        prompt, start or None, max_tokens, temperature, seed, count, chat, _WITHIN_S
    )
    return await confirmed(
        context,
        lambda workspace, confirm: service.sample_run(workspace, run_id, request, confirm=confirm),
    )


SAMPLE = Definition(sample_run, "Let a run's model write text", BRINGS)
