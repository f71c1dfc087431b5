"""The host's Python interpreters: paths, packages, and whether their PyTorch computes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.environment.requirements import release_of
from trainer_runtime.host.files.files import read_json, write_json
from trainer_runtime.host.processes.commands import ask

OLDEST_PYTHON = (3, 10)
_PROBE_S = 30.0
# A first import from a network disk, with CUDA to initialise, was seen to take minutes.
_CHECK_S = 240.0
_FAILED_FOR_S = 3600.0
_PROBLEM_LENGTH = 400
_ON_PATH = ("python3.13", "python3.12", "python3.11", "python3.10", "python3", "python")
_CONDA = ("~/miniconda3", "~/miniforge3", "~/anaconda3", "/opt/conda", "/opt/miniconda3")
# A GPU that somebody else fills says nothing against the PyTorch that found it.
_BUSY = re.compile(r"out of memory|busy or unavailable|all CUDA-capable devices are busy", re.I)
_DRIVER = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter and what it has; `installed`: versions by normalised name.

    `torch_stamp` changes when its PyTorch is installed again; None where there is none.
    """

    python: str
    version: str
    prefix: str
    base_prefix: str
    sites: tuple[str, ...]
    user_site: bool
    installed: Mapping[str, str]
    torch_stamp: str | None
    venv: bool
    ensurepip: bool

    @property
    def is_virtual(self) -> bool:
        return self.prefix != self.base_prefix

    @property
    def torch(self) -> str | None:
        return self.installed.get("torch")

    @property
    def pip(self) -> tuple[int, ...] | None:
        """The release of its pip."""
        return release_of(self.installed["pip"]) if "pip" in self.installed else None

    @property
    def is_young_enough(self) -> bool:
        return release_of(self.version)[:2] >= OLDEST_PYTHON


@dataclass(frozen=True, slots=True)
class Checked:
    """Check that an interpreter's PyTorch computes: the version, or the problem."""

    version: str | None
    problem: str = ""


def probe_interpreter(
    python: str, environment: Mapping[str, str], folder: Path
) -> tuple[Interpreter | None, str]:
    """The interpreter, or None and why it can't be used. `folder` holds `trainer_runtime`."""
    command = [python, "-m", "trainer_runtime.host.environment.interpreter_facts"]
    answer = ask(command, folder=folder, environment=environment, timeout_s=_PROBE_S)
    try:
        facts = decode_fields(answer.output.splitlines()[-1], "interpreter_facts")
        interpreter = Interpreter(
            # By the name that was given: what stands there may set more than its interpreter does.
            python=python if os.path.isabs(python) else facts.text("python"),
            version=facts.text("version"),
            prefix=facts.text("prefix"),
            base_prefix=facts.text("base_prefix"),
            sites=facts.texts("sites"),
            user_site=bool(facts.values["user_site"]),
            installed=facts.text_map("distributions"),
            torch_stamp=facts.find_text("torch_stamp"),
            venv=bool(facts.values["venv"]),
            ensurepip=bool(facts.values["ensurepip"]),
        )
    except (ValueError, LookupError, TypeError):
        return None, answer.last_words
    if not interpreter.is_young_enough:
        return None, f"it is Python {interpreter.version}, older than 3.10"
    return interpreter, ""


def candidates(environment: Mapping[str, str], own_first: bool) -> Iterator[str]:
    """Where interpreters may be, the likeliest first, each once.

    `own_first`: the runtime's own interpreter comes before those of the search path; not so
    where environment modules have just put another one there.
    """
    path = environment.get("PATH", os.defpath)
    on_path = [program for name in _ON_PATH if (program := shutil.which(name, path=path))]
    if not own_first:  # then `python3` is what the modules chose, whatever else there is
        on_path.sort(key=lambda program: Path(program).name != "python3")
    prefixes = [environment.get("CONDA_PREFIX"), *map(os.path.expanduser, _CONDA)]
    conda = [f"{prefix}/bin/python" for prefix in prefixes if prefix]
    ordered = [sys.executable, *on_path] if own_first else [*on_path, sys.executable]
    seen = set()
    for python in [*ordered, *conda]:
        # Not `resolve`: of a virtual environment the link is what makes it one.
        if python not in seen and os.access(python, os.X_OK):
            seen.add(python)
            yield python


def check_torch(
    python: Interpreter,
    device: str,
    *,
    environment: Mapping[str, str],
    folder: Path,
    cache: Path,
) -> Checked:
    """Whether the interpreter's PyTorch imports and computes on `device` (`cpu` or `cuda`).

    What was found is kept in `cache`, by the interpreter, its PyTorch, the driver and what of the
    GPUs is visible; a failure only for an hour, since its cause may lie outside of all these.
    """
    seen = [python.python, python.torch_stamp, device, driver()]
    seen += [environment.get(name) for name in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")]
    name = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:24]
    kept = cache / "torch" / f"{name}.json"
    kept_check = _recorded_check(read_json(kept))
    if kept_check is not None:
        return kept_check
    checked, keep = _check(python, device, environment, folder)
    if keep:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, {"version": checked.version, "problem": checked.problem, "t": time.time()})
    return checked


def check_imports(
    python: str, modules: Sequence[str], environment: Mapping[str, str], folder: Path
) -> Mapping[str, str]:
    """Which of the modules can't be imported, and why: nothing where all can."""
    if not modules:
        return {}
    command = [python, "-m", "trainer_runtime.train.checks.framework_check", *modules]
    answer = ask(command, folder=folder, environment=environment, timeout_s=_CHECK_S)
    try:
        facts = decode_fields(answer.output.splitlines()[-1], "framework_check").values
        return {name: str(why)[:_PROBLEM_LENGTH] for name, why in facts.items()}
    except (ValueError, LookupError):
        return dict.fromkeys(modules[:1], answer.last_words[:_PROBLEM_LENGTH])


def driver() -> str:
    """The NVIDIA driver's version; empty where there is none."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return ""
    match = _DRIVER.search(text)
    return match.group(1) if match else ""


def _recorded_check(kept: dict[str, Any] | None) -> Checked | None:
    if kept is None:
        return None
    if kept.get("version") is None and time.time() - float(kept.get("t", 0)) > _FAILED_FOR_S:
        return None
    return Checked(kept.get("version"), str(kept.get("problem", "")))


def _check(
    python: Interpreter, device: str, environment: Mapping[str, str], folder: Path
) -> tuple[Checked, bool]:
    """What was found, and whether it is worth keeping."""
    command = [python.python, "-m", "trainer_runtime.train.checks.torch_check", device]
    answer = ask(command, folder=folder, environment=environment, timeout_s=_CHECK_S)
    try:
        last = answer.output.splitlines()[-1]
        version = decode_fields(last, "torch_check").text("version")
        if answer.code == 0:
            return Checked(version), True
    except (ValueError, LookupError, TypeError):
        pass
    problem = answer.last_words[:_PROBLEM_LENGTH]
    if _BUSY.search(problem) and python.torch is not None:
        return Checked(python.torch), False
    return Checked(None, problem), True
