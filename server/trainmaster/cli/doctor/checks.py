"""What is missing on this machine, each with its remedy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys

from trainer_runtime import __version__
from trainmaster.backends import LOCAL
from trainmaster.cli.doctor.kaggle import kaggle_checks
from trainmaster.cli.doctor.keeper import keeping_checks
from trainmaster.cli.doctor.ssh import ssh_checks
from trainmaster.plan import HostFacts
from trainmaster.plan.decisions.requirements import frameworks_there
from trainmaster.sync.workspace import Workspace
from trainmaster.words.answers.hosts import DoctorAnswer, DoctorCheck
from trainmaster.words.errors import TrainmasterError
from trainmaster.words.settings import read_settings

_LEAST_DISK_GIB = 5.0


async def examine(workspace: Workspace) -> DoctorAnswer:
    """Check what Trainmaster and a local training need; changes nothing."""
    checks = [_python(), _window(), _sdk(), _settings(workspace)]
    try:
        facts = await workspace.backend(LOCAL).facts(None)
        checks += _host_checks(facts)
    except TrainmasterError as error:
        checks.append(
            DoctorCheck(name="host", ok=False, found=error.message, remedy=error.fix, needed=True)
        )
    checks += await ssh_checks(os.environ)
    checks += kaggle_checks(workspace.home, os.environ)
    checks += await keeping_checks(workspace, os.environ)
    return DoctorAnswer(
        ok=all(check.ok for check in checks if check.needed),
        version=__version__,
        home=str(workspace.home.root),
        checks=checks,
    )


def _python() -> DoctorCheck:
    return DoctorCheck(
        name="python",
        ok=sys.version_info >= (3, 11),
        found=f"{platform.python_version()} at {sys.executable}",
        remedy=None if sys.version_info >= (3, 11) else "Install Python 3.11 or newer.",
        needed=True,
    )


def _window() -> DoctorCheck:
    found = next((name for name in ("tmux", "screen") if shutil.which(name)), None)
    return DoctorCheck(
        name="tmux or screen",
        ok=found is not None,
        found=found or "neither",
        remedy=None if found else "Install tmux to attach to a training's log; nothing needs it.",
        needed=False,
    )


def _settings(workspace: Workspace) -> DoctorCheck:
    path = workspace.home.settings
    try:
        settings = read_settings(workspace.home)
    except TrainmasterError as error:
        found, remedy = error.message, error.fix
        return DoctorCheck(name="settings", ok=False, found=found, remedy=remedy, needed=True)
    allowed = ", ".join(settings.secrets.allow) or "none"
    summary = f"secrets allowed: {allowed}; downloads: {settings.download_root(workspace.home)}"
    there = str(path) if path.exists() else f"no {path}, so the defaults"
    return DoctorCheck(name="settings", ok=True, found=f"{there}: {summary}", needed=True)


def _sdk() -> DoctorCheck:
    return DoctorCheck(name="mcp", ok=True, found=importlib.metadata.version("mcp"), needed=True)


def _frameworks(facts: HostFacts) -> DoctorCheck:
    """Which frameworks train here with what is installed; for others an environment is built."""
    there = frameworks_there(facts.packages or {}) if facts.torch is not None else []
    return DoctorCheck(
        name="frameworks",
        ok=bool(there),
        found=f"{', '.join(there)} with {facts.python_path}" if there else "none without PyTorch",
        remedy=None
        if there
        else "`environment: auto` builds an environment for each training's framework.",
        needed=False,
    )


def _host_checks(facts: HostFacts) -> list[DoctorCheck]:
    torch, gpus = facts.torch, facts.gpus
    roomy = facts.disk_free_gib >= _LEAST_DISK_GIB
    return [
        DoctorCheck(
            name="torch",
            ok=torch is not None,
            found=torch.version if torch else f"not in {facts.python_path}",
            remedy=None
            if torch
            else "For trainings on this machine, install the `train` extra or name an interpreter "
            "in the spec's environment.",
            needed=False,
        ),
        _frameworks(facts),
        DoctorCheck(
            name="home",
            ok=facts.root_writable,
            found=facts.root,
            remedy=None if facts.root_writable else "Make it writable or set TRAINMASTER_HOME.",
            needed=True,
        ),
        DoctorCheck(
            name="disk",
            ok=roomy,
            found=f"{facts.disk_free_gib:.1f} GiB free",
            remedy=None if roomy else "Free some room: checkpoints and shards need it.",
            needed=True,
        ),
        DoctorCheck(
            name="processor",
            ok=True,
            found=f"{facts.cpu_model}, {facts.cores:g} cores, "
            f"{facts.memory_total_gib:.1f} GiB of memory",
            needed=False,
        ),
        DoctorCheck(
            name="gpu",
            ok=bool(gpus),
            found=", ".join(f"{gpu.name} ({gpu.memory_gib:.0f} GiB)" for gpu in gpus) or "none",
            remedy=None if gpus else "Small models train on the processor; others need a GPU.",
            needed=False,
        ),
    ]
