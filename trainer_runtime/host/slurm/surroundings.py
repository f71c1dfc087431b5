"""What a cluster gives its user besides nodes: modules, a shared disk, a quota, accounts."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.answers.slurm import QuotaAnswer
from trainer_runtime.host.slurm.programs import SlurmError, run_program

_WITHIN_S = 20.0
# The function is defined by the rc files of a login, if anywhere.
_AVAILABLE = "type module >/dev/null 2>&1 || . /etc/profile; module -t avail 2>&1"
_OF_TRAINING = re.compile(r"(?i)(^|[/-])(cuda|cudnn|nccl|python|pytorch|torch|ana|mini)(conda)?")
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/-]{0,99}")
_MOST_NAMED = 20
_ACCOUNT = "account,partition,qos"


def available_modules() -> list[str] | None:
    """The names of all modules; None where there is no `module`."""
    text = _output("bash", "-c", _AVAILABLE)
    return None if text is None else read_modules(text)


def read_modules(text: str) -> list[str]:
    """By the output of `module -t avail`, of Environment Modules or Lmod."""
    names = [re.sub(r"\s*[(<][^()<>]*[)>]$", "", line.strip()) for line in text.splitlines()]
    return [name.rstrip("/") for name in names if _MODULE.fullmatch(name)]


def of_training(names: Sequence[str]) -> list[str]:
    """Those of them that trainings load, the first few."""
    return [name for name in names if _OF_TRAINING.search(name)][:_MOST_NAMED]


def missing_modules(wanted: Sequence[str], available: Sequence[str] | None) -> list[str]:
    """Those of the wanted ones that are not there, neither by name nor as a name's version."""
    modules = available or ()
    return [
        name
        for name in wanted
        if not any(module == name or module.startswith(f"{name}/") for module in modules)
    ]


def own_quota(folder: Path, kind: str | None) -> QuotaAnswer | None:
    """The user's own on the disk of a folder; None where there is none, or nobody says."""
    place, user = _existing(folder), pwd.getpwuid(os.getuid()).pw_name
    if kind == "lustre":
        text = _output("lfs", "quota", "-q", "-u", user, str(place))
    else:
        text = _output("quota", "-w", "-f", _mount_point(place))
    return None if text is None else read_quota(text)


def read_quota(text: str) -> QuotaAnswer | None:
    """By the output of `quota -w` or `lfs quota -q`: file system, KiB, soft and hard limit, grace,
    files, their soft and hard limit."""
    for line in text.splitlines():
        numbers = [int(word.rstrip("*")) for word in line.split()[1:] if word.rstrip("*").isdigit()]
        if len(line.split()) >= 7 and len(numbers) >= 6:
            used, soft, hard, files, soft_files, hard_files = numbers[:6]
            limit, most_files = hard or soft, hard_files or soft_files
            if limit or most_files:
                return QuotaAnswer(used, limit or None, files, most_files or None)
    return None


def own_accounts() -> list[str]:
    """The accounts of this user that jobs may be charged to; none where no accounts are kept."""
    user = f"user={pwd.getpwuid(os.getuid()).pw_name}"
    shape = ("--noheader", "--parsable2", "show", "assoc", "where", user, f"format={_ACCOUNT}")
    text = ""
    with suppress(SlurmError):
        text = run_program("sacctmgr", *shape)
    return read_accounts(text)


def read_accounts(text: str) -> list[str]:
    """By the output of `sacctmgr show assoc`: each with its QOS, where it has some."""
    accounts = []
    for line in text.splitlines():
        account, _, rest = line.partition("|")
        partition, _, qos = rest.partition("|")
        of = f" in {partition}" if partition else ""
        accounts.append(f"{account}{of} (qos {qos})" if qos else f"{account}{of}")
    return list(dict.fromkeys(accounts))


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _mount_point(place: Path) -> str:
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return str(place)


def _output(*command: str) -> str | None:
    """What a program prints; None where it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # `quota` ends with 1 where a quota is exceeded.
    return done.stdout if done.returncode == 0 or "quota" in command[0] else None
