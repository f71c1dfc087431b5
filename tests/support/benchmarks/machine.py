"""The shape of the machine that figures were taken on: cores, memory, GPU."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

_GPU = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]


def machine_shape() -> str:
    """Such as `2 cores, 24 GiB of memory, Linux, Python 3.11`."""
    cores = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{cores} core{'s' * (cores > 1)}", f"{memory_gib:.0f} GiB of memory", *_gpus()]
    python = ".".join(platform.python_version_tuple()[:2])
    return ", ".join([*parts, platform.system(), f"Python {python}"])


def _gpus() -> list[str]:
    if shutil.which(_GPU[0]) is None:
        return []
    asked = subprocess.run(_GPU, capture_output=True, text=True, check=False, timeout=60)
    names = asked.stdout.split("\n")[:-1] if asked.returncode == 0 else []
    return [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
