"""The runtime of this machine's runs: written and compiled once per version, then linked.

A run's folder holds its own names for the files, so that it stays whole when the kept copy is
removed. Python finds their bytecode beside them and compiles nothing at each start.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

from trainmaster.backends.hosts.written_files import folders_of, make_durable, write_files
from trainmaster.home.assets import find_assets

PACKAGE = "trainer_runtime/"
READ_ONLY = 0o400  # an edit in one run must not reach the others


def put_runtime(cache: Path, files: Mapping[str, bytes], folder: Path) -> None:
    """Put the files of the runtime, by their names below `folder`, there.

    Where they can't be linked to a copy in `cache` (another disk), they are written.

    Raises:
        OSError: they can't be written either.
    """
    try:
        _link(_runtime_folder(cache, files), folder)
    except OSError:
        shutil.rmtree(folder / PACKAGE, ignore_errors=True)
        write_files(folder, files)


def _link(kept: Path, folder: Path) -> None:
    # Without `Path`, which costs more than the links: there are a thousand.
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for place, _, names in os.walk(kept, onerror=_fail):
        target = f"{folder}{place.removeprefix(str(kept))}"
        if place != str(kept):
            os.mkdir(target)
            made.append(target)
        for name in names:
            os.link(f"{place}/{name}", f"{target}/{name}")
    make_durable(made)


def _fail(error: OSError) -> None:
    raise error


def _runtime_folder(cache: Path, files: Mapping[str, bytes]) -> Path:
    """The folder in the cache that holds these files, made where need be."""
    kept = cache / "runtime" / _digest(files)
    if _is_whole(kept, files):
        os.utime(kept)  # it is in use
        return kept
    building = kept.with_name(f".building-{kept.name}-{os.getpid()}")
    try:
        _build(building, files)
        _put_at(kept, building, files)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return kept


def _put_at(kept: Path, building: Path, files: Mapping[str, bytes]) -> None:
    """Give a new copy its name, unless another process has made the same: others link to that."""
    with suppress(OSError):
        os.rename(building, kept)  # not in place of one that holds something
        return
    if _is_whole(kept, files):
        return
    damaged = building.with_name(f"{building.name}-damaged")
    os.rename(kept, damaged)
    shutil.rmtree(damaged, ignore_errors=True)
    os.rename(building, kept)


def _digest(files: Mapping[str, bytes]) -> str:
    """By content, and by the interpreter that the bytecode is for."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag}\0".encode())
    for name, data in files.items():
        digest.update(b"%s\0%s\0" % (name.encode(), data))
    return digest.hexdigest()[:16]


def _is_whole(kept: Path, files: Mapping[str, bytes]) -> bool:
    try:
        return all(_read(f"{kept}/{name}") == data for name, data in files.items())
    except OSError:
        return False


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _build(building: Path, files: Mapping[str, bytes]) -> None:
    write_files(building, files)
    installed = find_assets().runtime.parent
    for name, data in files.items():
        _take_bytecode(installed / name, data, building / name)
    import compileall  # heavy, and only a new copy needs it

    compileall.compile_dir(building, quiet=2)
    compiled = list(building.rglob("*.pyc"))
    make_durable([*compiled, *folders_of(building)])
    for path in (*compiled, *(building / name for name in files)):
        path.chmod(READ_ONLY)


def _take_bytecode(source: Path, data: bytes, target: Path) -> None:
    """Copy the bytecode of the installed module where its source is the same: it counts by the
    source's size and time."""
    compiled = Path(cache_from_source(str(source)))
    if source.suffix != ".py" or not compiled.is_file() or source.read_bytes() != data:
        return
    changed = source.stat().st_mtime_ns
    os.utime(target, ns=(changed, changed))
    copy = Path(cache_from_source(str(target)))
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(compiled, copy)
