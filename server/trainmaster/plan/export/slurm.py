"""Slurm: a batch script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.errors.errors import PlanError
from trainmaster.home.assets import Assets
from trainmaster.plan.export.compose import GRACE_S
from trainmaster.plan.export.needs import Needs
from trainmaster.plan.job_script import modules_of, nodes_options
from trainmaster.plan.templates import rendered

_TEMPLATE = "export/job.sbatch.j2"
_DAY_S, _HOUR_S, _MINUTE_S = 86400, 3600, 60
_LEAST_LIMIT_S, _LIMIT_PER_GRACE = 300.0, 5


def slurm_script(
    name: str, needs: Needs, head: str, assets: Assets, job: Mapping[str, Any] | None = None
) -> str:
    """The script; `name` is a run's, which no shell and no directive reads as anything else.

    `head`: comments for its first lines. `job`: a plan's section `slurm`, of the cluster that it
    was made for; None where the cluster is not known.

    Raises:
        PlanError: `INVALID_VALUE`, the time limit leaves no time to train.
        UsageError: `BAD_ARGUMENT`, a value of the section can't stand in a directive.
    """
    limit_s, modules = needs.limit_s, modules_of(job or {})
    signal_s = _signal_s(limit_s, None if job is None else job["partition"])
    asked = {
        "job-name": name,
        "nodes": str(needs.nodes),
        "ntasks-per-node" if needs.nodes > 1 else "ntasks": "1",
        **(_of_any_cluster(needs) if job is None else dict(nodes_options(job))),
        "time": "" if limit_s is None else _time(limit_s),
        "output": "train-%j.log",
        "open-mode": "append",
        # To the batch shell alone, which train.sh has become; on several nodes, to all of a step.
        "signal": f"{'' if needs.nodes > 1 else 'B:'}TERM@{signal_s}",
    }
    directives = "\n".join(
        f"#SBATCH --{option}={value}" for option, value in asked.items() if value
    )
    values = {"directives": directives, "head": head, "nodes": needs.nodes, "modules": modules}
    return rendered(assets, _TEMPLATE, values)


def _of_any_cluster(needs: Needs) -> dict[str, str]:
    return {
        "cpus-per-task": str(needs.cpus),
        "mem": "" if needs.memory_gib is None else f"{needs.memory_gib}G",
        "gres": f"gpu:{needs.gpus}" if needs.gpus else "",
    }


def _signal_s(limit_s: float | None, partition: str | None) -> int:
    """How long before the limit Slurm sends SIGTERM, which it may do a minute early."""
    if limit_s is None:
        return GRACE_S
    if limit_s < _LEAST_LIMIT_S:
        least = spoken_duration(_LEAST_LIMIT_S)
        where = "" if partition is None else f", or that of jobs in partition {partition},"
        other = "" if partition is None else "; or take a host of another partition or `--time`"
        raise PlanError(
            "INVALID_VALUE",
            f"`limits.max_runtime`{where} is {spoken_duration(limit_s)}: no job of Slurm both "
            "trains and saves in that, since Slurm counts limits in minutes and signals up to a "
            "minute early.",
            f"Set it to at least {least}, or leave it out{other}.",
            field="limits.max_runtime",
        )
    return min(GRACE_S, int(limit_s / _LIMIT_PER_GRACE))


def _time(seconds: float) -> str:
    """Slurm's `days-hours:minutes:seconds`."""
    days, rest = divmod(int(seconds), _DAY_S)
    hours, rest = divmod(rest, _HOUR_S)
    return f"{days}-{hours:02}:{rest // _MINUTE_S:02}:{rest % _MINUTE_S:02}"
