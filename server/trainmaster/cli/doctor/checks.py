"""What is missing on this machine, each with its remedy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Sequence

from trainer_runtime import __version__
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.figures import gib_text, size_text
from trainmaster.answers.checks import CheckRow, failed, none_failed, passed, warning
from trainmaster.answers.hosts import DoctorAnswer
from trainmaster.backends import LOCAL
from trainmaster.cli.doctor.kaggle import kaggle_checks, uses_kaggle
from trainmaster.cli.doctor.keeper import keeping_checks, uses_providers
from trainmaster.cli.doctor.ssh import ssh_checks
from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import HostFacts
from trainmaster.plan.decisions.requirements import frameworks_there
from trainmaster.settings.settings import read_settings
from trainmaster.store.disk_space import inodes_left, why_unwritable
from trainmaster.sync.workspace import Workspace

_LEAST_DISK_GIB = 5.0


async def examine(workspace: Workspace, *, everything: bool = False) -> DoctorAnswer:
    """Check what Trainmaster and a local training need, and of what only some use what this home
    uses, or `everything`; changes nothing."""
    uses = {
        "hosts by SSH": bool(workspace.control.hosts()),
        "Kaggle": uses_kaggle(workspace, os.environ),
        "providers of rented machines": uses_providers(workspace, os.environ),
    }
    of_ssh, of_kaggle, of_providers = (everything or used for used in uses.values())
    unused = [] if everything else [name for name, used in uses.items() if not used]
    checks = [
        passed("python", f"{platform.python_version()} at {sys.executable}"),
        _window(),
        passed("mcp", importlib.metadata.version("mcp")),
        _settings(workspace),
        _room(workspace),
    ]
    try:
        facts = await workspace.backend(LOCAL).facts(None)
        checks += _host_checks(facts)
    except TrainmasterError as error:
        checks.append(failed("host", error.message, error.fix))
    checks += await ssh_checks(os.environ) if of_ssh else []
    checks += kaggle_checks(workspace.home, os.environ) if of_kaggle else []
    checks += await keeping_checks(workspace, os.environ, of_providers=of_providers)
    return DoctorAnswer(
        ok=none_failed(checks),
        version=__version__,
        home=str(workspace.home.root),
        checks=checks,
        not_checked=_not_checked(unused),
        next_step=_next_step(workspace, checks),
    )


def _not_checked(unused: Sequence[str]) -> str | None:
    if not unused:
        return None
    names = ", ".join(unused)
    return f"Not in use here, so not checked: {names}; {command('doctor', '--all')} does."


def _next_step(workspace: Workspace, checks: Sequence[CheckRow]) -> str:
    """What to type now: the failing check's remedy, or the way to the first or the next run."""
    failing = next((row for row in checks if row.state == "fail"), None)
    if failing is not None:
        return f"{failing.name}: {failing.remedy} Then {command('doctor')} again."
    if workspace.control.list.newest(1):
        return command("overview")
    return f"{command('plan', 'SPEC')} decides and starts nothing; {command('demo')} shows a run."


def _window() -> CheckRow:
    program = next((name for name in ("tmux", "screen") if shutil.which(name)), None)
    if program is not None:
        return passed("tmux or screen", program)
    remedy = "Install tmux to attach to a training's log; nothing needs it."
    return warning("tmux or screen", "neither", remedy)


def _settings(workspace: Workspace) -> CheckRow:
    path = workspace.home.settings
    try:
        settings = read_settings(workspace.home)
    except TrainmasterError as error:
        return failed("settings", error.message, error.fix)
    allowed = ", ".join(settings.secrets.allow) or "none"
    summary = f"secrets allowed: {allowed}; downloads: {settings.download_root(workspace.home)}"
    there = str(path) if path.exists() else f"no {path}, so the defaults"
    return passed("settings", f"{there}: {summary}")


def _room(workspace: Workspace) -> CheckRow:
    """Whether the home can be written: space and inodes of its disk."""
    root = workspace.home.root
    if (full := why_unwritable(root)) is not None:
        remedy = "Free space or remove files there; until then, answers are of what is on record."
        return failed("home's disk", f"{root}: {full[1]} ({full[0]})", remedy)
    inodes = inodes_left(root)
    left = "" if inodes is None else f", {inodes:,} inodes"
    return passed("home's disk", f"{root}: {size_text(shutil.disk_usage(root).free)}{left} free")


def _host_checks(facts: HostFacts) -> list[CheckRow]:
    processor = f"{facts.cpu_model}, {facts.cores:g} cores, {gib_text(facts.memory_total_gib)}"
    return [
        _torch(facts),
        _frameworks(facts),
        _home(facts),
        _disk(facts),
        passed("processor", f"{processor} of memory"),
        _gpu(facts),
    ]


def _torch(facts: HostFacts) -> CheckRow:
    if facts.torch is not None:
        return passed("torch", facts.torch.version)
    remedy = (
        "For trainings on this machine, install the `train` extra or name an interpreter in the "
        "spec's environment."
    )
    return warning("torch", f"not in {facts.python_path}", remedy)


def _frameworks(facts: HostFacts) -> CheckRow:
    """Which frameworks train here with what is installed; for others an environment is built."""
    there = frameworks_there(facts.packages or {}) if facts.torch is not None else []
    if there:
        return passed("frameworks", f"{', '.join(there)} with {facts.python_path}")
    remedy = "`environment: auto` builds an environment for each training's framework."
    return warning("frameworks", "none without PyTorch", remedy)


def _home(facts: HostFacts) -> CheckRow:
    if facts.root_writable:
        return passed("home", facts.root)
    return failed("home", facts.root, "Make it writable or set TRAINMASTER_HOME.")


def _disk(facts: HostFacts) -> CheckRow:
    room = f"{gib_text(facts.disk_free_gib)} free"
    if facts.disk_free_gib >= _LEAST_DISK_GIB:
        return passed("disk", room)
    return failed("disk", room, "Free some room: checkpoints and shards need it.")


def _gpu(facts: HostFacts) -> CheckRow:
    if not facts.gpus:
        return warning("gpu", "none", "Small models train on the processor; others need a GPU.")
    names = ", ".join(f"{gpu.name} ({gib_text(gpu.memory_gib)})" for gpu in facts.gpus)
    return passed("gpu", names)
