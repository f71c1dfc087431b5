"""Changes what the jobs of a cluster ask for. Runs that exist keep their own until a resume takes
the host's."""

from __future__ import annotations

import time
from collections.abc import Mapping

from trainer_runtime.core.protocol.command import command, option
from trainmaster.answers.hosts import JobOptionsAnswer
from trainmaster.backends import SLURM
from trainmaster.backends.slurm.cluster import chosen_partition, read_cluster
from trainmaster.errors.errors import UsageError
from trainmaster.machines.host_options import refuse_unusable_job_options
from trainmaster.machines.host_registry import job_options
from trainmaster.machines.open_host import known_record, open_host
from trainmaster.store.host_record import HostRecord
from trainmaster.sync.workspace import Workspace


async def set_job_options(
    workspace: Workspace, name: str, changes: Mapping[str, str], *, offline: bool = False
) -> JobOptionsAnswer:
    """Change options of a cluster's jobs, after its partition was found to take them, unless
    `offline`. `changes`: of `SLURM_OPTIONS`; an empty text leaves the option to the cluster.

    Raises:
        HostError: `HOST_UNKNOWN`; `PARTITION_UNKNOWN`, `ACCOUNT_REFUSED`, `JOB_REFUSED`, no node
            has that; the error of the connection.
        UsageError: `BAD_ARGUMENT`, nothing is to be changed, an option can't be given to Slurm,
            or the host is not a cluster.
    """
    before = known_record(workspace, name)
    if before.launcher != SLURM:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{name} is not a cluster.",
            f"Name a host that was added with {option('--launcher', 'slurm')}.",
            field="name",
        )
    if not changes:
        raise UsageError(
            "BAD_ARGUMENT",
            "Nothing is to be changed.",
            f"Give an option, such as {option('--time', '12h')}.",
        )
    options = {option: value or None for option, value in changes.items()}
    refuse_unusable_job_options(options, before.launcher)
    record = HostRecord(**{**before.to_dict(), **options})
    if not offline:
        await _refuse_unknown(workspace, record)
    workspace.control.put_host(record, time.time())
    left = [run.run_id for run in workspace.control.runs(only_open=True) if run.host == name]
    again = f"{command('stop', left[0])} and then " if left else ""
    run = left[0] if left else "RUN"
    return JobOptionsAnswer(
        host=name,
        partition=record.partition,
        job_options=job_options(record),
        open_runs=left,
        next_step=f"Runs that are launched from now on take them. {again}"
        f"{command('resume', run, '--host', name)} continues "
        f"{'it' if left else 'a run'} with them.",
    )


async def _refuse_unknown(workspace: Workspace, record: HostRecord) -> None:
    host = open_host(workspace, record.name)
    try:
        chosen_partition(record, await read_cluster(host, record))
    finally:
        await host.disconnect()
