"""The shape of the machine that figures were taken on: cores, memory, GPU."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
_GPU = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]


def machine_shape() -> str:
    """Such as `2 cores (avx2), 24 GiB of memory, Linux, Python 3.11`."""
    count = len(os.sched_getaffinity(0))
    cores = f"{count} core{'s' * (count > 1)}{_instructions()}"
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [cores, f"{memory_gib:.0f} GiB of memory", *_gpus()]
    python = ".".join(platform.python_version_tuple()[:2])
    return ", ".join([*parts, platform.system(), f"Python {python}"])


def computes_bf16() -> bool:
    """Whether the processor does; elsewhere PyTorch imitates it, several times as slow as fp32."""
    return any("bf16" in flag for flag in _flags())


def _instructions() -> str:
    """The instructions that trainings gain most from, the best that the processor has."""
    flags = _flags()
    return next((f" ({one})" for one in _INSTRUCTIONS if one in flags), "")


def _flags() -> set[str]:
    try:
        return set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return set()


def _gpus() -> list[str]:
    if shutil.which(_GPU[0]) is None:
        return []
    asked = subprocess.run(_GPU, capture_output=True, text=True, check=False, timeout=60)
    names = asked.stdout.split("\n")[:-1] if asked.returncode == 0 else []
    return [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
