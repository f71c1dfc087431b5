"""Kaggle's machine types as documented: nothing can be measured before a session runs."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.backends.kaggle.client import Quota
from trainmaster.errors.errors import CloudError
from trainmaster.plan.facts import GpuFacts, HostFacts, SessionFacts, TorchFacts
from trainmaster.settings.settings import KaggleSettings

WORKING = "/kaggle/working"
_HOUR_S = 3600.0
_TORCH, _CUDA = "2.8.0", "12.8"  # the default image's CUDA; any version that works is accepted
_FIRST_BF16 = 8.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs of a session; memory of each in GiB."""

    count: int
    gpu: str
    memory_gib: float
    capability: float


# By the exact name in Kaggle's API (docs/kernels.md of Kaggle/kaggle-cli, 2026-09; pull requests
# 1192 and 1198). It replaces a name that it doesn't know without a word. Most are for those who
# take part in certain competitions; of the A100 the smaller size is assumed.
MACHINES = {
    "NvidiaTeslaT4": Machine(2, "Tesla T4", 15.0, 7.5),
    "NvidiaL4": Machine(4, "NVIDIA L4", 22.5, 8.9),
    "NvidiaL4X1": Machine(1, "NVIDIA L4", 22.5, 8.9),
    "NvidiaTeslaA100": Machine(1, "NVIDIA A100 40GB", 39.4, 8.0),
    "NvidiaH100": Machine(1, "NVIDIA H100", 79.1, 9.0),
    "NvidiaRtxPro6000": Machine(1, "NVIDIA RTX PRO 6000", 94.0, 12.0),
}
# What Kaggle gives instead of those that it has retired.
_RETIRED = {"NvidiaTeslaP100": "NvidiaTeslaT4", "TpuV38": "TpuV5E8", "Tpu1VmV38": "TpuV5E8"}
_TPU = "Tpu"


def machine_of(accelerator: str) -> Machine:
    """The machine of an accelerator.

    Raises:
        CloudError: `UNSUPPORTED`, Kaggle has none of this name, or nothing here trains on it.
    """
    machine = MACHINES.get(accelerator)
    if machine is not None:
        return machine
    if successor := _RETIRED.get(accelerator):
        problem = f"Kaggle has retired it, and gives {successor} in its place"
    elif accelerator.startswith(_TPU):
        problem = "no framework here trains on TPUs"
    else:
        problem = "Kaggle has no accelerator of this exact name, and would give another one"
    if _RETIRED.get(accelerator, "").startswith(_TPU):
        problem += ", and no framework here trains on TPUs"
    raise CloudError(
        "UNSUPPORTED",
        f"`kaggle.accelerator` is {accelerator!r}: {problem}.",
        f"Set it in the settings to one of {', '.join(MACHINES)}.",
        field="kaggle.accelerator",
    )


def documented(settings: KaggleSettings, quota: Quota, cache: str, now: float) -> HostFacts:
    """The documented machine of a session with accelerators; `cache`: outside of the session's
    output.

    Raises:
        CloudError: see `machine_of`.
    """
    machine = machine_of(settings.accelerator)
    gpus = tuple(
        GpuFacts(
            index=index,
            name=machine.gpu,
            memory_gib=machine.memory_gib,
            memory_free_gib=machine.memory_gib,
            capability=machine.capability,
        )
        for index in range(machine.count)
    )
    return HostFacts(
        hostname="kaggle",
        root=WORKING,
        cores=4.0,
        memory_total_gib=29.0,
        memory_available_gib=28.0,
        disk_free_gib=20.0,
        gpus=gpus,
        python_path="python3",
        python_version="3.11",
        torch=TorchFacts(
            version=_TORCH,
            cuda=_CUDA,
            cuda_available=True,
            bf16_gpu=machine.capability >= _FIRST_BF16,
        ),
        cache=cache,
        cache_free_gib=40.0,
        measured_at=now,
        sessions=_sessions(settings, quota),
    )


def _sessions(settings: KaggleSettings, quota: Quota) -> SessionFacts:
    usable_h = max(0.0, settings.session_hours - settings.margin_minutes / 60)
    return SessionFacts(
        hours=settings.session_hours,
        usable_hours=usable_h,
        internet=settings.internet,
        quota_left_h=quota.left_s / _HOUR_S,
        quota_total_h=quota.total_s / _HOUR_S,
        refresh_t=quota.refresh_t,
    )
