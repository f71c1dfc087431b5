"""The rows about GPUs: driver, memory, who holds it, and whether PyTorch computes on them."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import trainer_runtime
from trainer_runtime.core.protocol.figures import gib_text, spoken_duration
from trainer_runtime.host.environment.interpreters import candidates, probe_interpreter
from trainer_runtime.host.processes.commands import Ended, ask
from trainer_runtime.host.processes.hold import MARKER

State = Literal["ok", "warn", "fail"]
_MIB_PER_GIB = 1024.0
_QUERY_TIMEOUT_S = 15.0
_LEAST_TORCH_S = 1.0
# What driver and context take of a GPU that nobody uses.
_UNUSED_GIB = 1.0
_GPU_FIELDS = ("index", "uuid", "name", "driver_version", "memory.total", "memory.used")
_HOLDER_FIELDS = ("gpu_uuid", "pid", "used_memory")


def gpus(gpu_facts: list[dict[str, Any]]) -> Iterator[Row]:
    """A row per GPU. `gpu_facts` takes `{"index", "uuid", "name", "memory_gib", "holders"}`."""
    if shutil.which("nvidia-smi") is None:
        yield _none_or_hidden()
        return
    try:
        listed = _query("--query-gpu", _GPU_FIELDS)
        holding = _query("--query-compute-apps", _HOLDER_FIELDS)
    except (OSError, subprocess.SubprocessError) as error:
        reason = _error_text(error)
        remedy = "Run nvidia-smi there; a driver that was updated wants a reboot."
        yield Row("gpu", "fail", f"nvidia-smi fails: {reason}", remedy)
        return
    if not listed:
        yield Row("gpu", "warn", "nvidia-smi lists none", "Small models train on the processor.")
    for cells in listed:
        holders = [_holder(row) for row in holding if row["gpu_uuid"] == cells["uuid"]]
        gpu = {
            "index": cells["index"],
            "uuid": cells["uuid"],
            "name": cells["name"],
            "memory_gib": _gib(cells["memory.total"]),
            "holders": holders,
        }
        gpu_facts.append(gpu)
        yield _gpu_row(cells, gpu, holders)


def torch(gpu_facts: Sequence[Mapping[str, Any]], deadline_s: float) -> Iterator[Row]:
    """Check that the host's PyTorch computes, on each GPU if there are any.

    The interpreters are asked in the order in which `environment: auto` asks them. `deadline_s`: by
    the monotonic clock, when to give up.
    """
    asked, problem = [], None
    for python in candidates(os.environ, own_first=True):
        interpreter, _ = probe_interpreter(python, _environment(), _runtime())
        if interpreter is None:
            continue
        asked.append(python)
        if interpreter.torch is None:
            continue
        summary = f"{interpreter.torch} in {python}"
        broken = _compute(python, gpu_facts, deadline_s)
        if not broken:
            where = f"{len(gpu_facts)} GPUs" if gpu_facts else "the processor"
            yield Row("torch", "ok", f"{summary} computes on {where}")
            return
        problem = problem or f"{summary} does not compute: {'; '.join(broken)}"
    yield Row(
        "torch",
        "warn",
        problem or f"none in {', '.join(asked) or 'any interpreter'}",
        "None needed: `environment: auto` installs one. Or name an interpreter whose PyTorch "
        "works: `environment: {python: PATH}`.",
    )


def _compute(python: str, gpu_facts: Sequence[Mapping[str, Any]], deadline_s: float) -> list[str]:
    """What keeps the interpreter's PyTorch from computing, on all the GPUs at once."""
    command = [
        python,
        "-m",
        "trainer_runtime.train.checks.torch_check",
        "cuda" if gpu_facts else "cpu",
    ]
    # By identity, since CUDA counts GPUs in another order than nvidia-smi does.
    chosen = [{"CUDA_VISIBLE_DEVICES": str(gpu["uuid"])} for gpu in gpu_facts] or [{}]

    timeout_s = max(_LEAST_TORCH_S, deadline_s - time.monotonic())

    def run(variables: Mapping[str, str]) -> Ended:
        environment = {**_environment(), **variables}
        return ask(command, folder=_runtime(), environment=environment, timeout_s=timeout_s)

    with ThreadPoolExecutor(len(chosen)) as pool:
        ended = list(pool.map(run, chosen))
    names = [f"gpu {gpu['index']}" for gpu in gpu_facts] or ["processor"]
    return [f"{name}: {end.last_words}" for name, end in zip(names, ended, strict=True) if end.code]


def _runtime() -> Path:
    """The folder to import us from; where we came in an archive, `PYTHONPATH` names that."""
    folder = Path(trainer_runtime.__file__).resolve().parent.parent
    return folder if folder.is_dir() else Path("/")


def _environment() -> dict[str, str]:
    """A check leaves nothing behind."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def _none_or_hidden() -> Row:
    if Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists():
        state = "an NVIDIA driver is there, nvidia-smi is not"
        return Row("gpu", "warn", state, "Put nvidia-smi on the PATH of `ssh HOST env`.")
    return Row("gpu", "warn", "none", "Small models train on the processor; others need a GPU.")


def _query(what: str, fields: tuple[str, ...]) -> list[dict[str, str]]:
    command = ["nvidia-smi", f"{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
    )
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [dict(zip(fields, cells, strict=True)) for cells in rows if len(cells) == len(fields)]


def _error_text(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        words = f"{error.stdout} {error.stderr}".split()
        return " ".join(words)[:300] or f"exit code {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {spoken_duration(error.timeout)}"
    return str(error)


def _gib(cell: str) -> float | None:
    """None where the driver reports none (`[N/A]`)."""
    return round(float(cell) / _MIB_PER_GIB, 2) if cell[:1].isdigit() else None


def _holder(cells: dict[str, str]) -> dict[str, Any]:
    """Who it is, as far as it can be seen: in a container, others' processes can't."""
    process = Path("/proc") / cells["pid"]
    try:
        owner = process.stat().st_uid
        command = (process / "comm").read_text().strip()
    except OSError:
        return {"pid": cells["pid"], "gib": _gib(cells["used_memory"])}
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    return {
        "pid": cells["pid"],
        "gib": _gib(cells["used_memory"]),
        "user": user,
        "command": command,
        "run": _run_of(process),
    }


def _run_of(process: Path) -> str | None:
    """The run whose trainer it is, where it is one of ours."""
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    marker = f"{MARKER}=".encode()
    marks = [item[len(marker) :] for item in variables if item.startswith(marker)]
    return marks[0].rpartition(b"/")[0].decode(errors="replace") if marks else None


def _gpu_row(cells: dict[str, str], gpu: dict[str, Any], holders: list[dict[str, Any]]) -> Row:
    total, used = _gib(cells["memory.total"]), _gib(cells["memory.used"])
    held_gib = sum(holder["gib"] or 0.0 for holder in holders)
    held = [_holder_words(holder) for holder in holders]
    if used is not None and used - held_gib > _UNUSED_GIB:
        held.append(f"{gib_text(used - held_gib)} by processes that can't be seen from here")
    memory = "" if total is None else f", {gib_text(total)}"
    summary = f"{gpu['name']}{memory}, driver {cells['driver_version']}"
    if not held:
        return Row(f"gpu {gpu['index']}", "ok", f"{summary}, free")
    return Row(
        f"gpu {gpu['index']}",
        "warn",
        f"{summary}, held: {'; '.join(held)}",
        "Wait until it is free, or ask its holder; CUDA_VISIBLE_DEVICES in the spec's env "
        "chooses among several.",
    )


def _holder_words(holder: dict[str, Any]) -> str:
    size = "" if holder["gib"] is None else f" {gib_text(holder['gib'])}"
    if "user" not in holder:
        return f"pid {holder['pid']} (not to be seen from here){size}"
    what = f"run {holder['run']}" if holder["run"] else holder["command"]
    return f"{holder['user']}, pid {holder['pid']} ({what}){size}"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was examined. `fail`: no training can run like this.

    `remedy`: reported unless the state is ok.
    """

    name: str
    state: State
    found: str
    remedy: str | None = None

    def answer(self) -> dict[str, str | None]:
        return {**asdict(self), "remedy": None if self.state == "ok" else self.remedy}
