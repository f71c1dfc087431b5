"""How much the mirrors may hold, so that what hosts send fills no disk: of one run, and of all.

Copies of checkpoints and final models are left out: they come only where a run asks for them, and
retention bounds them.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainer_runtime.core.files.shared_quota import SharedQuota
from trainmaster.words.errors import StateError
from trainmaster.words.paths import Home
from trainmaster.words.settings import MirrorSettings, read_settings

# Once the total is reached, every run may still have this much: none stops the others.
ALWAYS_ALLOWED_BYTES = 64 << 20
# Attempts, generations of replaced files.
MOST_FILES = 50_000
_NOT_COUNTED = frozenset({"checkpoints", "final"})
_GIB = 1 << 30


def run_limit_bytes(home: Home) -> int:
    """The bytes that the mirror of each run may hold."""
    return int(_settings(home).run_gib * _GIB)


def total_quota(home: Home) -> SharedQuota:
    """What all mirrors together may still grow by."""
    return SharedQuota(
        home.mirror_usage,
        limit=lambda: int(_settings(home).total_gib * _GIB),
        measure=lambda: used(home.mirror)[0],
    )


def _settings(home: Home) -> MirrorSettings:
    try:
        return read_settings(home).mirror
    except StateError:
        return MirrorSettings()  # `doctor` reports settings that can't be read


def used(folder: Path) -> tuple[int, int]:
    """The bytes and the number of the files below a folder."""
    size = count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_COUNTED]
        for name in names:
            count += 1
            try:
                size += os.lstat(f"{place}/{name}").st_size
            except FileNotFoundError:
                continue
    return size, count
