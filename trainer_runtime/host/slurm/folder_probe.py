"""Whether compute nodes have the host's root, tried before a run's job is queued.

A login node alone can't know: a disk of its own may be one that it exports. Each job notes in the
root's `partitions/` which partition it has begun in. Where that note is missing, a step on compute
nodes tries; it gets its resources at once or not at all. Network file systems may show new files
late, and may not be mounted on compute nodes, or read-only.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.answers.slurm import is_network_disk
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.host.files.configs import config_of
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.programs import SlurmError, login_environment, run_program
from trainer_runtime.host.slurm.shared_disk import disk_of
from trainer_runtime.host.slurm.steps import FOLDER_MISSING

_PARTITIONS = "partitions"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_NOT_WRITABLE = 73
# As the job's own script does; and what every job does next. A node says its name where it fails.
_TRY = (
    'end() { echo "$SLURMD_NODENAME"; exit "$1"; }; file="$0/.probe-$SLURM_PROCID"; '
    'for try in 1 2 3 4 5 6 7 8 9 10; do test -f "$0/config.json" && break; sleep 0.3; done; '
    f'test -f "$0/config.json" || end {FOLDER_MISSING}; '
    f'{{ true >"$file" && rm "$file"; }} || end {_NOT_WRITABLE}'
)
_MEMORY = "64M"
# A scheduler that considers each request on its own takes moments; a step, seconds.
_IMMEDIATE_S = 5
_STEP_S = 12.0
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class _Tried:
    """`code` of the steps, None where they took too long; `nodes` that have said their names;
    `words` of `srun`."""

    code: int | None
    nodes: tuple[str, ...]
    words: str


def try_folder(run: RunFolder) -> str | None:
    """Make sure that nodes of the run's partition have its folder, where nothing says so already.
    Returns why that could not be found out now; None where it was.

    Raises:
        SlurmError: `FOLDER_NOT_SHARED`, a node lacks it, or can't write it.
    """
    asked = (read_json(run.config) or {}).get("slurm") or {}
    disk = disk_of(run.root)
    partition = str(asked.get("partition") or "")
    is_known = partition in known_partitions(run.host_root)
    if is_known:
        return None
    words = ""
    for nodes in dict.fromkeys((config_of(run).compute.nodes, 1)):  # or as many as are free
        tried = _probe(run, asked, nodes)
        _refuse_missing(run, tried)
        if tried.code == 0:
            _note(run.host_root, partition)
            return None
        words = tried.words
        if tried.code is None:
            break
    # Nodes that can't be asked have most probably what they, too, would have by the network.
    return None if disk is not None and is_network_disk(disk.kind) else words


def note_partition(run: RunFolder) -> None:
    """Note, in a job of the run, that the nodes of its partition have the host's root."""
    _note(run.host_root, os.environ.get("SLURM_JOB_PARTITION", ""))


def forget_partition(run: RunFolder) -> None:
    """A node of the partition of the run's jobs lacks the folder: the next launch tries again."""
    asked = (read_json(run.config) or {}).get("slurm") or {}
    name = str(asked.get("partition") or "")
    if _NAME.fullmatch(name):
        (run.host_root / _PARTITIONS / name).unlink(missing_ok=True)


def known_partitions(root: Path) -> list[str]:
    """Those whose nodes are known to have the root."""
    try:
        return sorted(path.name for path in (root / _PARTITIONS).iterdir())
    except OSError:
        return []


def _note(root: Path, partition: str) -> None:
    if _NAME.fullmatch(partition) and not (root / _PARTITIONS / partition).exists():
        with suppress(OSError):  # a full disk: then the next launch tries again
            (root / _PARTITIONS).mkdir(exist_ok=True)
            write_atomic(root / _PARTITIONS / partition, b"")


def _refuse_missing(run: RunFolder, tried: _Tried) -> None:
    lacks = {
        FOLDER_MISSING: f"no {run.host_root}, or can't read it",
        _NOT_WRITABLE: f"{run.host_root}, but can't write there",
    }.get(tried.code or 0)
    if lacks is not None:
        named = ", ".join(tried.nodes)
        raise SlurmError(
            "FOLDER_NOT_SHARED",
            f"{f'Compute node {named}' if named else 'A compute node'} has {lacks}.",
            "Use a folder that login and compute nodes share.",
        )


def _probe(run: RunFolder, asked: Mapping[str, Any], nodes: int) -> _Tried:
    name = f"probe-{secrets.token_hex(4)}"
    command = [*_step(name, asked, nodes), "/bin/sh", "-c", _TRY, str(run.root)]
    try:
        done = subprocess.run(
            command,
            env=login_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_STEP_S,
            check=False,
        )
    except FileNotFoundError:
        return _Tried(None, (), "srun is not on the search path")
    except subprocess.TimeoutExpired:
        with suppress(SlurmError):
            run_program("scancel", f"--name={name}")
        return _Tried(None, (), f"srun took longer than {_STEP_S:.0f} s")
    names = {word for word in done.stdout.decode(errors="replace").split() if _NAME.fullmatch(word)}
    words = shown(b" ".join(done.stderr.split())[-_LONGEST:])
    return _Tried(done.returncode, tuple(sorted(names)), words)


def _step(name: str, asked: Mapping[str, Any], nodes: int) -> Iterator[str]:
    """`srun` for a step on so many of the nodes that the run's jobs may get."""
    yield from ("srun", "--quiet", f"--immediate={_IMMEDIATE_S}", "--time=1", f"--mem={_MEMORY}")
    yield from (f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--mpi=none")
    yield from (f"--job-name={name}", "--chdir=/", "--input=none", "--kill-on-bad-exit=0")
    for option in ("partition", "account", "qos", "constraint"):
        if asked.get(option):
            yield f"--{option}={asked[option]}"
