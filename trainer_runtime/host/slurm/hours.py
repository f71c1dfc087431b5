"""What accounts and QOS have used up, by what Slurm's controller enforces."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator

from trainer_runtime.core.answers.slurm import UsedUp
from trainer_runtime.host.slurm.programs import SlurmError, run_program

# An account stands below others, whose limits are its own, too.
_MOST_PARENTS = 10
_ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=\s*(\S+)", re.MULTILINE)
_LIMITED = {"limits", "all", "safe"}
_KEEPS_NONE = re.compile(r"^AccountingStorageType\s*=\s*\S*none\s*$", re.MULTILINE)
_ACCOUNT = re.compile(r"\bAccount=(\S*) UserName=([^\s(]*)\S* Partition=(\S*) ")
_PARENT = re.compile(r"\bParentAccount=([^\s(]*)")
_MINUTES = re.compile(r"\bGrpTRESMins=(\S+)")
_WALL = re.compile(r"\bGrpWall=(\d+)\((\d+)(?:\.\d+)?\)")
_RESOURCE = re.compile(r"([^=,()]+)=(\d+)\((\d+)\)")


def charged(account: str | None, qos: str | None) -> tuple[str | None, list[UsedUp]]:
    """The account that jobs are charged to, by itself or as asked, and what of its resources, and
    of its QOS, nothing is left of; nothing where Slurm keeps no accounts, enforces no limits, or
    does not say."""
    try:
        settings = run_program("scontrol", "show", "config")
        if _KEEPS_NONE.search(settings):
            return account, []
        account = account or _default_account()
        enforced = _ENFORCED.search(settings)
        if enforced is None or not _LIMITED & set(enforced[1].lower().split(",")):
            return account, []
        return account, [*_of_account(account), *_of_qos(qos)]
    except SlurmError:
        return account, []


def _default_account() -> str | None:
    named = os.environ.get("SBATCH_ACCOUNT")
    if named:
        return named
    shape = ("--noheader", "--parsable2", "show", "user", _user(), "format=defaultaccount")
    return run_program("sacctmgr", *shape).strip() or None


def _of_account(account: str | None) -> Iterator[UsedUp]:
    seen: set[str] = set()
    while account and account not in seen and len(seen) < _MOST_PARENTS:
        seen.add(account)
        parent = None
        for line in _records("assoc", f"accounts={account}"):
            match = _ACCOUNT.search(line)
            if match is None or match[1] != account or match[2] not in ("", _user()):
                continue
            yield from read_used_up(f"account {account}", line)
            if not match[2] and (above := _PARENT.search(line)):
                parent = above[1]
        account = parent


def _of_qos(qos: str | None) -> Iterator[UsedUp]:
    for line in _records("qos", f"qos={qos}") if qos else ():
        if line.startswith(f"QOS={qos}("):
            yield from read_used_up(f"QOS {qos}", line)


def read_used_up(whose: str, line: str) -> Iterator[UsedUp]:
    """By a record of `scontrol show assoc_mgr`: minutes that are allowed, and used in brackets."""
    minutes, wall = _MINUTES.search(line), _WALL.search(line)
    pairs = _RESOURCE.findall(minutes[1]) if minutes else []
    pairs += [("wall", *wall.groups())] if wall else []
    for resource, limit, used in pairs:
        if int(used) >= int(limit):
            yield UsedUp(whose, resource, int(used), int(limit))


def _records(kind: str, chosen: str) -> list[str]:
    text = run_program("scontrol", "--oneliner", "show", "assoc_mgr", f"flags={kind}", chosen)
    return text.splitlines()


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
