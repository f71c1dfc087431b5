"""The disk under a folder that the nodes of a cluster share: its kind, and where locks hold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BEEGFS = "/etc/beegfs/beegfs-client.conf"
_OFF = ("local_lock=all", "local_lock=flock", "nolock")


@dataclass(frozen=True, slots=True)
class SharedDisk:
    """`kind` of file system. `locks`: whether a lock of one node holds on the others, None where
    the mount does not say."""

    kind: str
    locks: bool | None = None


def disk_of(folder: Path) -> SharedDisk | None:
    """That of a folder which may not be there yet; None where unknown."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    device = os.stat(place).st_dev
    mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    return read_disk(mounts, f"{os.major(device)}:{os.minor(device)}")


def read_disk(mounts: str, device: str) -> SharedDisk | None:
    """By the text of `mountinfo`; `device`: its numbers there."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        words, shown = before.split(), after.split()
        if len(words) > 5 and words[2] == device and shown:
            kind = shown[0]
            options = [*words[5].split(","), *shown[-1].split(",")]
            return SharedDisk(kind, _locks(kind, options))
    return None


def _locks(kind: str, options: Sequence[str]) -> bool | None:
    if kind == "lustre":  # without the option, it has no such locks, or each node its own
        return "flock" in options
    if kind in ("nfs", "nfs4"):
        return not any(option in _OFF for option in options)
    if kind == "beegfs":
        files = [option[8:] for option in options if option.startswith("cfgFile=")]
        return _beegfs_locks(Path(files[0] if files else _BEEGFS))
    return None


def _beegfs_locks(settings: Path) -> bool:
    """Off unless an administrator has turned them on."""
    with suppress(OSError):
        for line in settings.read_text(errors="replace").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "tuneUseGlobalFileLocks":
                return value.strip().lower() in ("true", "1", "yes", "on", "enabled")
    return False
