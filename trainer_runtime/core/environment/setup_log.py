"""Which step a preparation is at, from what it wrote into its `setup.log`.

Only names of the closed list below and numbers come out of it: what commands print is anybody's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_STEPS = {
    "setup": "setup script",
    "modules": "modules",
    "image": "image",
    "venv": "environment",
    "pip": "packages",
    "uv": "packages",
    "environment": "environment",
    "adopt": "checkpoint",
    "code": "code",
    "data": "data",
}
_READY = "environment: ready, "
_WAITING = re.compile(
    r"(?:data: waiting for the (upload|shards)|environment: waiting for the wheels)"
)
_SHARE = re.compile(r"data: [^:]+: ([\d,.]+) of ([\d,.]+) MiB")
# The step until the first line that names one.
FIRST_STEP = "environment"
STEPS = (
    "setup script",
    "modules",
    "image",
    "environment",
    "packages",
    "wheels",
    "checkpoint",
    "code",
    "data",
    "upload",
)


@dataclass(frozen=True, slots=True)
class SetupStep:
    """`name` is one of `STEPS`; `share` is the completed fraction, 0 to 1, where it is reported."""

    name: str
    share: float | None = None


def setup_step(lines: Sequence[str]) -> SetupStep | None:
    """The step that the newest matching line names; None if no line names one."""
    for line in reversed(lines):
        label = line.partition(": ")[0]
        if label in _STEPS:
            return _step(line, _STEPS[label])
    return None


def _step(line: str, name: str) -> SetupStep:
    if line.startswith(_READY):
        return SetupStep("data")
    waiting = _WAITING.match(line)
    if waiting is not None:
        name = "upload" if waiting.group(1) else "wheels"
    return SetupStep(name, _share(line))


def _share(line: str) -> float | None:
    match = _SHARE.match(line)
    if match is None:
        return None
    done, total = (float(number.replace(",", "")) for number in match.groups())
    return min(1.0, done / total) if total > 0 else None
