"""Checks whether this machine can train: rows of what, state, found, remedy.

Nothing is changed. Each row is checked independently: a failing one hides none of the others.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from trainer_runtime.core.files.private import others_write
from trainer_runtime.core.frameworks.packages import MODULES
from trainer_runtime.core.processes.cgroup_limits import limits
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.figures import gib_text
from trainer_runtime.host.answer.check_gpus import Row, State, gpus, torch
from trainer_runtime.host.containers.engine import NoEngineError, find_engine, installed
from trainer_runtime.host.environment.interpreter_facts import facts

_GIB = 2.0**30
_LEAST_ROOT_GIB = 5.0  # as `trainmaster doctor` has it: checkpoints and shards
_ROOMY_CACHE_GIB = 15.0  # an environment with PyTorch and CUDA's libraries takes seven or eight
_LEAST_SHARED_GIB = 1.0  # containers have 64 MiB by default
_LEAST_MEMORY_GIB = 2.0
_TOOL_TIMEOUT_S = 10.0
_OTHERS_READ, _OTHERS_ENTER = 0o055, 0o011
_NAME = "containers"


def check(root: Path, cache: Path, within_s: float) -> dict[str, Any]:
    """All rows for runs in `root` and what they share in `cache`; `time`: the clock at the end.

    PyTorch gets what is left of `within_s` seconds.
    """
    deadline_s = time.monotonic() + within_s
    rows: list[Row] = []
    for name, probe in _checks(root, cache):
        rows += _independently(name, probe)
    gpu_facts: list[dict[str, Any]] = []
    rows += _independently("gpu", lambda: gpus(gpu_facts))
    rows += _independently("torch", lambda: torch(gpu_facts, deadline_s))
    return {"checks": [row.answer() for row in rows], "gpus": gpu_facts, "time": time.time()}


def _checks(root: Path, cache: Path) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    yield "python", _python
    yield "environments", _environments
    yield "frameworks", _frameworks
    yield "tmux or screen", _window
    yield "root", lambda: _folder("root", root, _LEAST_ROOT_GIB, _LEAST_ROOT_GIB)
    yield "permissions", lambda: permissions(root)
    yield "cache", lambda: _folder("cache", cache, _LEAST_ROOT_GIB, _ROOMY_CACHE_GIB)
    yield "cores and memory", _limits
    yield "/dev/shm", lambda: _shared_memory(Path("/dev/shm"))
    yield "logging out", _logging_out
    yield "containers", engine


def _independently(name: str, probe: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    try:
        yield from probe()
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        yield Row(name, "warn", f"could not be checked: {error}", "Check it by hand.")


def _python() -> Iterator[Row]:
    yield Row("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _environments() -> Iterator[Row]:
    """Whether a virtual environment could be made: Debian parts `ensurepip` from the rest."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        yield Row("environments", "ok", "venv and pip")
        return
    other = next((name for name in ("uv", "virtualenv") if shutil.which(name)), None)
    yield Row(
        "environments",
        "warn",
        f"{sys.executable} has no venv with pip" + (f"; {other} is there" if other else ""),
        "Install it (on Debian and Ubuntu `apt install python3-venv`), or name an interpreter in "
        "the spec: `environment: {python: PATH}`.",
    )


def _frameworks() -> Iterator[Row]:
    """The installed frameworks; runs that need more get their own environment."""
    there = facts()["distributions"]
    versions = [f"{name} {there[name]}" for name in MODULES if name in there]
    yield Row(
        "frameworks",
        "ok",
        ", ".join(versions) or "no packages of litgpt, hf or trl: environments with them are built",
    )


def _window() -> Iterator[Row]:
    program = next((name for name in ("tmux", "screen") if shutil.which(name)), None)
    remedy = "Install tmux to attach to a training's log; nothing needs it."
    yield Row("tmux or screen", "ok" if program else "warn", program or "neither", remedy)


def _folder(name: str, folder: Path, least_gib: float, roomy_gib: float) -> Iterator[Row]:
    existing = folder.absolute()
    while not os.path.exists(existing):  # Path.exists() raises where a folder can't be entered
        existing = existing.parent
    change = f"Make it writable, or add the host again with another: `--{name} DIR`."
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0" * 4096)
    except OSError as error:
        problem = f"{existing} can't be written: {error.strerror}"
        yield Row(name, "fail", problem, change)
        return
    free_gib = shutil.disk_usage(existing).free / _GIB
    state: State = "fail" if free_gib < least_gib else "warn" if free_gib < roomy_gib else "ok"
    yield Row(
        name,
        state,
        f"{folder}, {gib_text(free_gib)} free",
        f"Free some room ({command('hosts gc', 'HOST')} removes what no run uses), or put it on "
        f"another disk: `--{name} DIR`.",
    )
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        problem = f"{existing} lies on a disk from which nothing may be executed (noexec)"
        remedy = f"Environments don't work there: `--{name} DIR`."
        yield Row(f"{name} noexec", "warn", problem, remedy)


def permissions(root: Path) -> Iterator[Row]:
    """Whether other users can change what runs in `root`, or read its data and secrets."""
    try:
        status = root.stat()
    except FileNotFoundError:
        return  # it is created for its owner alone
    place = shlex.quote(str(root))
    if status.st_uid != os.geteuid():
        problem = f"{root} belongs to another user, who can change what runs there"
        yield Row("permissions", "fail", problem, f"Choose another: {option('--root', 'DIR')}.")
    elif not all(folder.stat().st_mode & _OTHERS_ENTER for folder in root.resolve().parents):
        yield Row("permissions", "ok", "no other user can enter a folder above the root")
    elif others_write(status):
        problem = f"other users can write to {root}, and change what runs there"
        remedy = f"Check that its runs are yours, then: `chmod -R go-w {place}`."
        yield Row("permissions", "fail", problem, remedy)
    elif status.st_mode & _OTHERS_READ:
        problem = f"other users can read what lies in {root}"
        yield Row("permissions", "warn", problem, f"`chmod go-rwx {place}`")
    else:
        yield Row("permissions", "ok", f"{root} is for its owner alone")


def _limits() -> Iterator[Row]:
    bounds = limits()
    memory, there = bounds.memory_bytes / _GIB, bounds.memory_there_bytes / _GIB
    cores = f"{bounds.cores:g} of {bounds.cores_there} cores"
    state: State = "warn" if bounds.cores < 1 or memory < _LEAST_MEMORY_GIB else "ok"
    remedy = "Give the container or the account more: its limits (cgroup) are that tight."
    yield Row(
        "cores and memory", state, f"{cores}, {gib_text(memory)} of {gib_text(there)}", remedy
    )


def _shared_memory(folder: Path) -> Iterator[Row]:
    if not folder.is_dir():
        yield Row("/dev/shm", "warn", "not there", "Mount a tmpfs on /dev/shm.")
        return
    size_gib = shutil.disk_usage(folder).total / _GIB
    state: State = "ok" if size_gib >= _LEAST_SHARED_GIB else "warn"
    remedy = "Data loaders and NCCL want more: start the container with --shm-size=8g."
    yield Row("/dev/shm", state, gib_text(size_gib), remedy)


def _logging_out() -> Iterator[Row]:
    """Whether processes survive the end of the session that started them."""
    if shutil.which("loginctl") is None:
        return
    manager = _loginctl("--property=KillUserProcesses", "show-session")
    if manager != "yes" or os.getuid() == 0:
        return
    user = pwd.getpwuid(os.getuid()).pw_name
    if _loginctl("--property=Linger", "show-user", user) == "yes":
        state = "processes are killed at logout; lingering is on, so they live on"
        yield Row("logging out", "ok", state)
        return
    state = "processes are killed at logout (KillUserProcesses=yes)"
    remedy = f"Run `loginctl enable-linger {user}` there: trainings die otherwise."
    yield Row("logging out", "warn", state, remedy)


def _loginctl(*arguments: str) -> str:
    done = subprocess.run(
        ["loginctl", "--no-pager", *arguments],
        capture_output=True,
        text=True,
        timeout=_TOOL_TIMEOUT_S,
        check=False,
    )
    return done.stdout.strip().partition("=")[2]


def engine() -> Iterator[Row]:
    """Which engine answers, or why none does; one that is not there is needed by nobody else."""
    if not installed(os.environ):
        yield Row(_NAME, "ok", "neither docker nor podman; only compute.launcher: docker needs one")
        return
    try:
        container_engine = find_engine(os.environ)
    except NoEngineError as error:
        remedy = (
            "Start its daemon, or let this account use it (for Docker, add it to the group "
            "docker); only compute.launcher: docker needs it."
        )
        yield Row(_NAME, "warn", str(error), remedy)
        return
    yield Row(_NAME, "ok", container_engine.label)
