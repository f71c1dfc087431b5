"""Which PyTorch an NVIDIA driver can run.

A driver runs what was built for any CUDA of a major version that it knows (minor version
compatibility, docs.nvidia.com/deploy/cuda-compatibility: 13.x from 580 on, 12.x from 525 on, 11.x
from 450 on). PyTorch's default Linux wheels were built for 12.x from 2.1 to 2.10, and for 13.0
since 2.11 (release notes of 2.1 and 2.11; pytorch/pytorch#177975).
"""

from __future__ import annotations

import re

# The oldest that the trainer works with: torch.amp.GradScaler takes a device since then.
OLDEST_TORCH = "2.3"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
SOURCE = "docs.nvidia.com/deploy/cuda-compatibility; release notes of PyTorch 2.1 and 2.11"
# First driver branch, and what `torch` is bounded by there.
_BOUNDS = ((580, ""), (525, "<2.11"))


def cpu_build(requirement: str) -> str | None:
    """The build without CUDA of one version of torch; None for a requirement of anything else.

    PyTorch's own index calls it `+cpu` (download.pytorch.org/whl/cpu); PyPI, whose wheels for
    x86-64 bring CUDA, has none.
    """
    match = re.fullmatch(r"torch==[0-9.]+", requirement)
    return f"{requirement}+cpu" if match is not None else None


def torch_bound(driver: str) -> str | None:
    """The bound on torch (`<2.11`, empty for none); None for a driver too old for any that trains.

    A driver whose version is not known bounds nothing.
    """
    match = re.match(r"\d+", driver)
    if match is None:
        return ""
    branch = int(match.group())
    return next((bound for first, bound in _BOUNDS if branch >= first), None)
