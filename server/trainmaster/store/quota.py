"""How much the mirrors may hold, so that what hosts send fills no disk: of one run, and of all.

Copies of checkpoints and final models come only where a run or a person asks for them: with what
was downloaded into the home, they have a quota of their own.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from trainer_runtime.core.files.shared_quota import SharedQuota
from trainmaster.errors.errors import StateError
from trainmaster.home.paths import Home
from trainmaster.settings.settings import MirrorSettings, read_settings

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


def copies_quota(home: Home) -> SharedQuota:
    """What downloads into the home and copies of checkpoints may still grow by."""
    return SharedQuota(
        home.copies_usage,
        limit=lambda: copies_limit_bytes(home),
        measure=lambda: sum(copies_used(home).values()),
    )


def copies_limit_bytes(home: Home) -> int:
    """The bytes that they may take together."""
    return int(_settings(home).copies_gib * _GIB)


def copies_used(home: Home) -> dict[Path, int]:
    """The bytes of each folder of downloads, and of each mirror's copies of checkpoints."""
    folders = [place for name in _NOT_COUNTED for place in home.mirror.glob(f"*/*/{name}")]
    folders += home.downloads.iterdir() if home.downloads.is_dir() else ()
    return {place: _size(place) for place in folders}


def _settings(home: Home) -> MirrorSettings:
    try:
        return read_settings(home).mirror
    except StateError:
        return MirrorSettings()  # `doctor` reports settings that can't be read


def _size(place: Path) -> int:
    try:
        return used(place, frozenset())[0] if place.is_dir() else place.lstat().st_size
    except FileNotFoundError:
        return 0


def used(folder: Path, left_out: Collection[str] = _NOT_COUNTED) -> tuple[int, int]:
    """The bytes and the number of the files below a folder, but for folders of these names."""
    size = count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in left_out]
        for name in names:
            count += 1
            try:
                size += os.lstat(f"{place}/{name}").st_size
            except FileNotFoundError:
                continue
    return size, count
