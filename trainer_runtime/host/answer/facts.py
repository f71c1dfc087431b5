"""Reports what this machine offers a training, as JSON. Nothing is measured or changed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from trainer_runtime.core.frameworks.packages import MODULES
from trainer_runtime.host.containers.engine import installed
from trainer_runtime.host.environment.interpreter_facts import facts
from trainer_runtime.host.processes.quick_commands import answer_of

_GIB = 2.0**30
_GPU_QUERY = "index,name,memory.total,memory.free,driver_version,compute_cap"
_GPU_QUERY_WITHIN_S = 15.0
_FIRST_BF16_CAPABILITY = 8.0


def examine(root: Path, cache: Path | None = None) -> dict[str, Any]:
    """The facts that a plan is made from; runs would lie in `root`, what they share in `cache`."""
    existing = _nearest_existing(root)
    gpus, flags = _gpus(), (_cpu_field("flags") or "").split()
    return {
        "hostname": platform.node(),
        "root": str(root),
        "cpu_model": _cpu_field("model name") or platform.machine(),
        "cores": usable_cores(),
        "memory_total_gib": _memory_gib("MemTotal"),
        "memory_available_gib": _memory_gib("MemAvailable"),
        "disk_free_gib": _disk_free_gib(existing),
        **_cache(cache or root / "cache", existing),
        "gpus": [{**gpu, "capability": gpu["capability"] or None} for gpu in gpus],
        "bf16_cpu": "avx512_bf16" in flags or "amx_bf16" in flags,
        "python_path": sys.executable,
        "python_version": platform.python_version(),
        "torch": _torch(gpus),
        **_installed(),
        "engines": installed(os.environ),
        "root_writable": os.access(existing, os.W_OK | os.X_OK) and existing.is_dir(),
        "c_compiler": any(shutil.which(name) for name in ("cc", "gcc", "clang")),
        "measured_at": time.time(),
    }


def _cache(cache: Path, root: Path) -> dict[str, Any]:
    """Where runs share data; what its disk has left, where that is another than the root's."""
    existing = _nearest_existing(cache)
    shared = existing.stat().st_dev == root.stat().st_dev
    return {
        "cache": str(cache),
        "cache_free_gib": None if shared else _disk_free_gib(existing),
        "cache_writable": os.access(existing, os.W_OK | os.X_OK) and existing.is_dir(),
    }


def _disk_free_gib(existing: Path) -> float:
    return round(shutil.disk_usage(existing).free / _GIB, 3)


def _installed() -> dict[str, Any]:
    """What this interpreter has of frameworks, and what could build an environment here."""
    own = facts()
    there = own["distributions"]
    pip = there.get("pip")
    return {
        "packages": {name: there[name] for name in MODULES if name in there},
        "venv_available": own["venv"] and (own["ensurepip"] or pip is not None),
        "pip": pip,
        "uv": shutil.which("uv"),
    }


def usable_cores() -> float:
    """Processors that this process may keep busy: its affinity, cut by the cgroup's quota."""
    cores = float(len(os.sched_getaffinity(0)))
    quota = _cgroup_quota()
    return cores if quota is None else round(min(cores, quota), 2)


def _cgroup_quota() -> float | None:
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text().strip()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if limit == "max" or int(limit) <= 0:
        return None
    return int(limit) / int(period)


def _nearest_existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _cpu_field(name: str) -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    match = re.search(rf"^{name}\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def _memory_gib(name: str) -> float:
    """The machine's, cut by the cgroup's limit."""
    text = Path("/proc/meminfo").read_text()
    match = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    memory = int(match.group(1)) * 1024 if match else 0
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        memory = min(memory, limit - (used if name == "MemAvailable" else 0))
    except (OSError, ValueError):
        pass
    return round(memory / _GIB, 3)


def gpu_names() -> list[str]:
    """The names of the GPUs that nvidia-smi lists here, in order."""
    return sorted(gpu["name"] for gpu in _gpus())


def _gpus() -> list[dict[str, Any]]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={_GPU_QUERY}", "--format=csv,noheader,nounits"]
    done = answer_of(command, within_s=_GPU_QUERY_WITHIN_S)
    gpu_facts = []
    for row in [] if done is None else done.stdout.decode(errors="replace").splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) != len(_GPU_QUERY.split(",")) or not cells[0].isdigit():
            continue
        gpu_facts.append(
            {
                "index": int(cells[0]),
                "name": cells[1],
                "memory_gib": _mib_as_gib(cells[2], "MemTotal"),
                "memory_free_gib": _mib_as_gib(cells[3], "MemAvailable"),
                "driver": cells[4],
                "capability": float(cells[5]) if cells[5][:1].isdigit() else 0.0,
            }
        )
    return gpu_facts


def _mib_as_gib(cell: str, in_host: str) -> float:
    """A GPU that shares the host's memory reports none of its own (`[N/A]`)."""
    return round(float(cell) / 1024, 2) if cell[:1].isdigit() else _memory_gib(in_host)


def _torch(gpus: list[dict[str, Any]]) -> dict[str, Any] | None:
    """PyTorch as this interpreter has it installed; importing it would take seconds."""
    if importlib.util.find_spec("torch") is None:
        return None
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    cuda = _cuda_of(version)
    return {
        "version": version,
        "cuda": cuda,
        "cuda_available": cuda is not None and bool(gpus),
        "bf16_gpu": bool(gpus) and all(g["capability"] >= _FIRST_BF16_CAPABILITY for g in gpus),
    }


def _cuda_of(version: str) -> str | None:
    """The CUDA version that a build was made for; None for a build without."""
    specification = importlib.util.find_spec("torch")
    origin = specification.origin if specification else None
    if origin is not None:
        try:
            text = Path(origin).with_name("version.py").read_text()
        except OSError:
            text = ""
        match = re.search(r"^cuda\s*:.*=\s*'([^']+)'", text, re.MULTILINE)
        if match or "cuda" in text:
            return match.group(1) if match else None
    return version.split("+cu", 1)[1] if "+cu" in version else None
