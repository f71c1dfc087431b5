"""Which engines a plan can be exported to, and the file that each of them takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.protocol.figures import spoken_duration
from trainmaster.home.assets import Assets
from trainmaster.plan.export.compose import RESTARTS, compose
from trainmaster.plan.export.kubernetes import jobset, secret_name
from trainmaster.plan.export.needs import Needs, needs
from trainmaster.plan.export.skypilot import skypilot_task
from trainmaster.plan.export.slurm import slurm_script
from trainmaster.plan.result import Plan
from trainmaster.settings.yaml12 import dump_yaml

_LOST = """\
# Trainmaster does not supervise it there: no restart decided by cause, no smaller batch after an
# out-of-memory error, no rewind after a NaN, no detection of hangs, no findings, alerts, cost or
# mirror of checkpoints. What stays: train.sh verifies each checkpoint after it was saved and
# continues from the newest one that verifies; SIGTERM saves first (exit code 75); status page and
# metrics are files of this folder, and `trainmaster diagnose LOG` reads the engine's log."""


@dataclass(frozen=True, slots=True)
class Engine:
    """`start`: the command that hands the file over. `takes_image`: it runs a container.
    `has_limit`: of time. `one_machine`: why it takes no specs for several, None where it does."""

    file: str
    start: str
    takes_image: bool = False
    has_limit: bool = False
    one_machine: str | None = None


@dataclass(frozen=True, slots=True)
class EngineFile:
    """A file by its name, and the command that submits it from the folder."""

    name: str
    text: str
    start: str


ENGINES: Mapping[str, Engine] = {
    "slurm": Engine("job.sbatch", "sbatch job.sbatch", has_limit=True),
    "skypilot": Engine(
        "task.yaml",
        "sky jobs launch task.yaml",
        one_machine="machines that SkyPilot rents share no disk for checkpoints",
    ),
    "kubernetes": Engine(
        "jobset.yaml",
        "kubectl apply -f jobset.yaml",
        takes_image=True,
        has_limit=True,
    ),
    "docker-compose": Engine(
        "compose.yaml",
        "docker compose up",
        takes_image=True,
        one_machine="Compose starts services on the machine where it is called",
    ),
}
_HEADS = {
    "slurm": """\
# A batch script for Slurm, to be submitted in this folder: {start}
# Options of sbatch go before the ones below: sbatch --partition=gpu --account=lab job.sbatch
# At the time limit it saves; submitted again, it continues.
""",
    "skypilot": """\
# A task for SkyPilot, to be submitted in this folder: {start}
# The folder is copied to the machine, which is removed when the job ends: add `file_mounts` for a
# bucket, keep `checkpoints` in it (else a replaced machine starts over), and copy `final` to it
# after `sh train.sh` (docs: SkyPilot, Managed Jobs). `sky launch` keeps the machine instead.
# It asks for machines at their full price. For spot prices, once a bucket has the checkpoints:
#   {spot}
# After an error it is started up to {restarts} more times, also where its input is unusable
# (exit code 77), which no restart repairs.
""",
    "kubernetes": """\
# A JobSet for Kubernetes (jobset.x-k8s.io), to be submitted by: {start}
# This folder has to lie in the persistent volume claim `trainmaster` as `{name}`; the claim keeps
# the checkpoints when a pod is replaced. GPUs of a kind: add a nodeSelector of your cluster.
# The cluster needs JobSet's controller: `kubectl get crd jobsets.jobset.x-k8s.io` finds it where it
# is installed (docs: JobSet, Installation). A JobSet that has ended stays, and has to be deleted
# before this one is submitted again: kubectl delete -f jobset.yaml
""",
    "docker-compose": """\
# A service for Docker Compose, to be started in this folder: {start}
# The folder is mounted; checkpoints stay in it.
# After an error it is started up to {restarts} more times, also where its input is unusable
# (exit code 77), which no restart repairs.
""",
}
_SECRETS = {
    "slurm": """\
# Set {names} where sbatch is called, which passes it on.
""",
    "skypilot": """\
# Set {names} where this command is called: `--secret` passes on its value.
""",
    "kubernetes": """\
# It takes {names} from the Secret `{secret}`, to be made where the values are set, once:
#   printf '{lines}' {values} | \\
#     kubectl create secret generic {secret} --from-env-file=/dev/stdin
""",
    "docker-compose": """\
# Set {names} where this command is called: Compose passes on its value.
""",
}
_NODES = {
    "slurm": """\
# It trains on {nodes} nodes, which all have to see this folder under the same path. They meet at
# the first one's name and a port from 20000 on, unless MASTER_ADDR and MASTER_PORT are set, over
# the interfaces that gloo and NCCL choose or GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name.
""",
    "kubernetes": """\
# It trains in {nodes} pods, for which the claim has to be `ReadWriteMany`, on a disk whose file
# locks hold between nodes. They meet at the first one's name, by the JobSet's service.
""",
}
_DEADLINE = """\
# {limit} after its start, waiting for nodes included, it saves and ends for good, as failed. A
# restart after another failure has all of that time again, as has a JobSet submitted again.
"""
_TOOLKIT = """\
# For its GPUs, the machine needs Nvidia's driver and the NVIDIA Container Toolkit.
"""
_PLANNED_JOB = """\
# What it asks for was planned for nodes of the partition {partition}.
"""
_ANY_GPU = """\
# It takes any GPU{planned}. For a type, as `sinfo --format=%G` names it:
#   sbatch --gres=gpu:TYPE:{gpus} job.sbatch
"""


def engine_file(
    plan: Plan,
    name: str,
    engine: str,
    image: str | None,
    assets: Assets,
    *,
    job: Mapping[str, Any] | None = None,
) -> EngineFile:
    """The file of a plan for one of `ENGINES`, to lie in the rendered folder of the run `name`.

    `image`: of the container, for engines that run one. `job`: for Slurm, the section `slurm` of
    a plan for the cluster.

    Raises:
        PlanError, UsageError: as `slurm_script`.
    """
    to, what = ENGINES[engine], needs(plan, job)
    start = _start(engine, what)
    head = _head(engine, name, what, start, job)
    if engine == "slurm":
        return EngineFile(to.file, slurm_script(name, what, head, assets, job), start)
    document = _DOCUMENTS[engine](name, what, image or "")
    return EngineFile(to.file, f"{head}\n{dump_yaml(document)}", start)


def _start(engine: str, needs: Needs) -> str:
    start = ENGINES[engine].start
    if engine != "skypilot":
        return start
    command, _, file = start.rpartition(" ")
    passed = [word for name in needs.secrets for word in ("--secret", name)]
    return " ".join([command, *passed, file])


def _head(engine: str, name: str, needs: Needs, start: str, job: Mapping[str, Any] | None) -> str:
    """Comments on what the engine needs first, and what is lost."""
    spot = start.replace("launch", "launch --use-spot", 1)
    parts = [_HEADS[engine].format(start=start, name=name, spot=spot, restarts=RESTARTS)]
    if engine == "kubernetes" and needs.limit_s is not None:
        parts.append(_DEADLINE.format(limit=spoken_duration(needs.limit_s)))
    if engine == "docker-compose" and needs.gpus:
        parts.append(_TOOLKIT)
    if job is not None:
        parts.append(_PLANNED_JOB.format(partition=job["partition"]))
    if needs.secrets:
        texts = {
            "names": " and ".join(needs.secrets),
            "secret": secret_name(name),
            "lines": "".join(f"{secret}=%s\\n" for secret in needs.secrets),
            "values": " ".join(f'"${secret}"' for secret in needs.secrets),
        }
        parts.append(_SECRETS[engine].format(**texts))
    if needs.nodes > 1:
        parts.append(_NODES[engine].format(nodes=needs.nodes))
    if engine == "slurm" and needs.gpus and not _has_type(job):
        planned = "" if needs.gpu is None else f", and is planned for {needs.gpu}"
        parts.append(_ANY_GPU.format(planned=planned, gpus=needs.gpus))
    return "".join([*parts, _LOST])


def _has_type(job: Mapping[str, Any] | None) -> bool:
    resources = [resource.split(":") for resource in ((job or {}).get("gres") or "").split(",")]
    return any(resource[0] == "gpu" and len(resource) > 2 for resource in resources)


_DOCUMENTS: Mapping[str, Callable[[str, Needs, str], dict[str, object]]] = {
    "skypilot": skypilot_task,
    "kubernetes": jobset,
    "docker-compose": compose,
}
