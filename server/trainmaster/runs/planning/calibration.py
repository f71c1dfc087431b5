"""The measured throughput of earlier runs, for the estimates of the next plan."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.protocol.lines import number
from trainmaster.plan import Calibration, Throughput
from trainmaster.store.run import Run
from trainmaster.sync.run_view import load_view
from trainmaster.sync.workspace import Workspace

_MOST_RUNS = 50
_ALIKE = 3.0
# A run's first steps are slower than what follows.
_LEAST_STEPS = 20


def measured_on(workspace: Workspace, host: str, config: ConfigDocument) -> Calibration:
    """The throughput of comparable runs, the newest first: of this host, and with GPUs of others,
    which the plan separates by the GPU's name.

    Like: of the same framework and method, as many processes (on CPUs: threads, too), sharing
    alike, and within threefold the arithmetic per token and the tokens per micro-batch. A small
    model on a processor reaches a fraction of what a larger one does.
    """
    planned = RunConfig.parse(config)
    alike = [
        run
        for run in workspace.control.runs()
        if not run.is_attached
        and (run.host == host or run.config.compute.gpus)
        and _alike(run.config, planned)
    ]
    return Calibration(measured=tuple(_measured(workspace, alike[:_MOST_RUNS])))


def _measured(workspace: Workspace, runs: list[Run]) -> Iterator[Throughput]:
    for run in runs:
        progress = load_view(workspace, run.run_id).progress
        if progress is None or progress.steps_done < _LEAST_STEPS or not progress.step_time_s:
            continue
        tokens = number(progress.described.get("tokens_per_step"))
        flops = run.config.derived.flops_per_token
        if tokens is not None and flops is not None:
            yield Throughput(
                device=str(progress.described.get("device")),
                precision=str(progress.described.get("precision")),
                flops_per_s=tokens * flops / progress.step_time_s,
            )


def _alike(config: RunConfig, other: RunConfig) -> bool:
    if (config.framework, config.method) != (other.framework, other.method):
        return False
    if _hardware(config) != _hardware(other):
        return False
    if not config.derived.flops_per_token or not other.derived.flops_per_token:
        return False
    ratios = [
        config.derived.flops_per_token / other.derived.flops_per_token,
        _micro_batch_tokens(config) / _micro_batch_tokens(other),
    ]
    return all(1 / _ALIKE <= ratio <= _ALIKE for ratio in ratios)


def _hardware(config: RunConfig) -> tuple[int | None, int, str, bool]:
    """The values that comparable runs share."""
    compute = config.compute
    return (
        None if compute.gpus else compute.threads,
        compute.processes,
        compute.strategy,
        compute.activation_checkpointing,
    )


def _micro_batch_tokens(config: RunConfig) -> int:
    return config.batch.micro_batch * config.data.seq_len
