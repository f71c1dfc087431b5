"""The builds of PyTorch that a host installed first, by which it installs them again.

Which build a machine needs depends on its processor, its driver and its package indexes, so that no
lock of ours can name its digest. The first installation is recorded in the cache (`locks/`) with
the digests of the files that pip was given; a later one takes those files and no others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainer_runtime.core.decoding import DecodingError, Fields, decode_fields
from trainer_runtime.core.environment.lock import LockedPackage
from trainer_runtime.core.environment.requirements import normalised
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.host.environment.installers import Installer, Wanted, install
from trainer_runtime.host.processes.commands import Report

_MOST_BYTES = 16 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


def record_path(cache: Path, python: str, lines: Sequence[Sequence[str]]) -> Path:
    """Where the builds are recorded that a Python of this version got for these lines."""
    text = json.dumps([python, *map(list, lines)])
    return cache / "locks" / f"torch-{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"


def install_recorded(
    installer: Installer,
    wanted: Wanted,
    record: Path | None,
    report: Report,
    *,
    environment: Mapping[str, str],
    lock: int,
) -> None:
    """Install what is wanted by the digests on `record`; where that is missing, write it.

    uv reports no digests; what it installs is not recorded. `record` None: neither is done.

    Raises:
        EnvironmentUnusableError, EnvironmentUnavailableError: as `install` does.
    """
    if record is not None and record.exists():
        report(f"environment: PyTorch by the digests in {record}")
        again = replace(wanted, requirements=[record], preferred=None, hashed=True)
        install(installer, again, report, environment=environment, lock=lock)
        return
    listed = wanted.venv / "installed.json"
    first = replace(wanted, record=listed) if record is not None else wanted
    install(installer, first, report, environment=environment, lock=lock)
    installed = None if record is None else installed_packages(listed)
    if record is not None and installed:
        record.parent.mkdir(exist_ok=True)
        write_atomic(record, "".join(f"{package}\n" for package in installed).encode())
        report(f"environment: the digests of its files are recorded in {record}")
    elif record is not None:
        report(f"environment: {installer.kind} reports no digests of PyTorch's files; not recorded")


def installed_packages(listed: Path) -> list[LockedPackage] | None:
    """What pip's report names; None where one of the files has no digest."""
    try:
        items = decode_fields(listed.read_bytes(), listed.name, max_bytes=_MOST_BYTES)
        return [_package(item) for item in items.sections("install")]
    except (OSError, DecodingError, KeyError):
        return None


def _package(item: Fields) -> LockedPackage:
    metadata = item.section("metadata")
    archive = item.section("download_info").section("archive_info")
    # Before 23.1, pip gives `hash` alone for files of a folder.
    hashes = archive.find_section("hashes")
    digests = {} if hashes is None else hashes.values
    digest = digests.get("sha256") or archive.text("hash").removeprefix("sha256=")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise DecodingError("pip's report", "archive_info", "has no sha256")
    name = normalised(metadata.text("name"))
    return LockedPackage(f"{name}=={metadata.text('version')}", (digest,))
