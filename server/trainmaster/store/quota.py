"""How much a run's mirror may hold, so that what one host sends fills no disk.

Copies of checkpoints and final models are left out: they come only where a run asks for them, and
retention bounds them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from trainer_runtime.core.decoding import DecodingError, decode_fields
from trainmaster.words.errors import StateError
from trainmaster.words.paths import Home
from trainmaster.words.settings import MirrorSettings, read_settings

# Once the total is reached, every run may still have this much: none stops the others.
ALWAYS_ALLOWED_BYTES = 64 << 20
# Attempts, generations of replaced files.
MOST_FILES = 50_000
_MEASURED_EVERY_S = 600.0
_NOT_COUNTED = frozenset({"checkpoints", "final"})
_GIB = 1 << 30


def run_limit_bytes(home: Home) -> int:
    """The bytes that each run's mirror may hold now."""
    try:
        given = read_settings(home).mirror
    except StateError:
        given = MirrorSettings()  # `doctor` reports settings that can't be read
    limit = int(given.run_gib * _GIB)
    is_over = total_bytes(home) > given.total_gib * _GIB
    return min(limit, ALWAYS_ALLOWED_BYTES) if is_over else limit


def total_bytes(home: Home) -> int:
    """What all mirrors hold, measured every ten minutes at most."""
    try:
        found = decode_fields(home.mirror_usage.read_bytes(), home.mirror_usage.name)
        if 0 <= time.time() - found.time("t") < _MEASURED_EVERY_S:
            return found.integer("bytes")
    except (OSError, DecodingError):
        pass
    total = used(home.mirror)[0]
    temporary = home.mirror_usage.with_name(f".{home.mirror_usage.name}.{os.getpid()}")
    try:
        temporary.write_text(f'{{"t": {time.time():.3f}, "bytes": {total}}}')
        os.replace(temporary, home.mirror_usage)
    except OSError:
        temporary.unlink(missing_ok=True)
    return total


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
