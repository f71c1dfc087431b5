"""Kaggle's machine types as documented: nothing can be measured before a session runs."""

from __future__ import annotations

from trainmaster.backends.kaggle.client import Quota
from trainmaster.plan.facts import GpuFacts, HostFacts, SessionFacts, TorchFacts
from trainmaster.words.settings import KaggleSettings

WORKING = "/kaggle/working"
_HOUR_S = 3600.0
_T4 = ("Tesla T4", 15.0, 7.5)
# By the prefix of Kaggle's accelerator name: number of GPUs, model, memory, capability.
_GPUS: dict[str, tuple[int, tuple[str, float, float]]] = {
    "nvidiateslat4": (2, _T4),
    "nvidial4": (4, ("NVIDIA L4", 22.5, 8.9)),
}
_TORCH = "2.6.0"  # any version that works there is accepted
_FIRST_BF16 = 8.0


def documented(settings: KaggleSettings, quota: Quota, cache: str, now: float) -> HostFacts:
    """The documented machine of a session with accelerators; `cache`: outside of the session's
    output."""
    count, (name, memory_gib, capability) = _gpus(settings.accelerator)
    gpus = tuple(
        GpuFacts(
            index=index,
            name=name,
            memory_gib=memory_gib,
            memory_free_gib=memory_gib,
            capability=capability,
        )
        for index in range(count)
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
            version=_TORCH, cuda="12.4", cuda_available=True, bf16_gpu=capability >= _FIRST_BF16
        ),
        cache=cache,
        cache_free_gib=40.0,
        measured_at=now,
        sessions=_sessions(settings, quota),
    )


def _gpus(accelerator: str) -> tuple[int, tuple[str, float, float]]:
    """For an unknown accelerator, the most common one."""
    asked = accelerator.lower()
    return next((found for name, found in _GPUS.items() if asked.startswith(name)), (2, _T4))


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
