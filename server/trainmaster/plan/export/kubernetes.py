"""Kubernetes: a JobSet with a pod for each machine (jobset.sigs.k8s.io, v1alpha2)."""

from __future__ import annotations

import re
from typing import Any

from trainer_runtime.core.protocol.lines import ExitCode
from trainmaster.plan.export.compose import GRACE_S, RESTARTS
from trainmaster.plan.export.needs import Needs

_CLAIM, _MOUNT = "trainmaster", "/runs"
_JOB, _PORT = "trainer", "29500"
_BY_INDEX = "NODE_RANK=$JOB_COMPLETION_INDEX exec sh train.sh"
# A pod's name is the JobSet's with 20 letters of indices, and has at most 63.
_LONGEST_NAME = 40


def jobset(name: str, needs: Needs, image: str) -> dict[str, Any]:
    """The JobSet; it starts over up to `RESTARTS` times, but not after unusable input or where the
    deadline was reached: a restarted Job would have the whole of it again."""
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [_container(name, needs, image)],
        "volumes": [
            {"name": "runs", "persistentVolumeClaim": {"claimName": _CLAIM}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _quantity(needs.shared)}},
        ],
    }
    unusable = {
        "action": "FailJob",
        "onExitCodes": {"operator": "In", "values": [int(ExitCode.UNUSABLE)]},
    }
    job: dict[str, Any] = {
        "parallelism": needs.nodes,
        "completions": needs.nodes,
        **({"completionMode": "Indexed"} if needs.nodes > 1 else {}),
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [unusable]},
        "template": {"spec": pod},
    }
    if needs.limit_s is not None:
        job["activeDeadlineSeconds"] = int(needs.limit_s)
    never = {
        "name": "unusable_or_too_long",
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy", "DeadlineExceeded"],
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": _dns_label(name), "labels": {"trainmaster/run": name.rstrip("._-")}},
        "spec": {
            "failurePolicy": {"maxRestarts": RESTARTS, "rules": [never]},
            "replicatedJobs": [{"name": _JOB, "replicas": 1, "template": {"spec": job}}],
        },
    }


def secret_name(name: str) -> str:
    """The Secret that the run's container takes its variables from."""
    return f"{_dns_label(name)}-secrets"


def _container(name: str, needs: Needs, image: str) -> dict[str, Any]:
    requests: dict[str, Any] = {"cpu": str(needs.cpus)}
    if needs.memory_gib is not None:
        requests["memory"] = f"{needs.memory_gib}Gi"
    resources: dict[str, Any] = {"requests": requests}
    if needs.gpus:
        resources["limits"] = {"nvidia.com/gpu": str(needs.gpus)}
    container: dict[str, Any] = {
        "name": "trainer",
        "image": image,
        "command": ["sh", "train.sh"] if needs.nodes == 1 else ["sh", "-c", _BY_INDEX],
        "workingDir": f"{_MOUNT}/{name}",
        "resources": resources,
        "volumeMounts": [
            {"name": "runs", "mountPath": _MOUNT},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    env: list[dict[str, Any]] = []
    if needs.nodes > 1:  # the first pod has this name at the JobSet's own service
        label = _dns_label(name)
        first = {"MASTER_ADDR": f"{label}-{_JOB}-0-0.{label}", "MASTER_PORT": _PORT}
        env += [{"name": key, "value": value} for key, value in first.items()]
    if needs.secrets:
        source = secret_name(name)
        env += [
            {"name": secret, "valueFrom": {"secretKeyRef": {"name": source, "key": secret}}}
            for secret in needs.secrets
        ]
    return {**container, "env": env} if env else container


def _dns_label(name: str) -> str:
    """RFC 1035, as for a service: lower-case letters, digits and dashes, the first a letter."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower())
    label = label if label[0].isalpha() else f"run-{label}"
    return label[:_LONGEST_NAME].strip("-")


def _quantity(size: str) -> str:
    return f"{size[:-1]}{size[-1].upper()}i"
