"""What this machine has for reaching others over SSH; only trainings elsewhere need any of it."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.protocol.command import option
from trainmaster.answers.checks import CheckRow, passed, warning

_TIMEOUT_S = 5.0
_VERSION = re.compile(r"OpenSSH_[^\s,]+")
_NO_KEYS = 1


async def ssh_checks(environment: Mapping[str, str]) -> list[CheckRow]:
    """The `ssh` program, the agent and the private keys."""
    return [await _program(environment), await _agent(environment), _keys(environment)]


async def _program(environment: Mapping[str, str]) -> CheckRow:
    path = shutil.which("ssh", path=environment.get("PATH"))
    if path is None:
        remedy = (
            "Install OpenSSH's client for hosts with "
            f"{option('--transport', 'openssh')}; others need none."
        )
        return warning("ssh", "not there", remedy)
    _, output = await _answer(environment, path, "-V")
    version = _VERSION.search(output)
    return passed("ssh", f"{version.group() if version else 'version unknown'} at {path}")


async def _agent(environment: Mapping[str, str]) -> CheckRow:
    remedy = "Start one (`eval $(ssh-agent)`) and `ssh-add` a key that has a passphrase."
    if not environment.get("SSH_AUTH_SOCK"):
        return warning("ssh agent", "SSH_AUTH_SOCK is not set", remedy)
    code, output = await _answer(environment, "ssh-add", "-l")
    if code == 0:
        count = len(output.splitlines())
        return passed("ssh agent", f"{count} key" if count == 1 else f"{count} keys")
    state = "holds no keys" if code == _NO_KEYS else "does not answer"
    return warning("ssh agent", state, remedy)


def _keys(environment: Mapping[str, str]) -> CheckRow:
    folder = Path(environment.get("HOME") or "~").expanduser() / ".ssh"
    names = []
    with suppress(OSError):
        names = sorted(
            path.name.removesuffix(".pub")
            for path in folder.glob("*.pub")
            if path.with_suffix("").is_file()
        )
    if names:
        return passed("ssh keys", f"{', '.join(names)} in {folder}")
    remedy = "`ssh-keygen -t ed25519` makes one; hosts take --key FILE, too."
    return warning("ssh keys", f"none in {folder}", remedy)


async def _answer(environment: Mapping[str, str], *command: str) -> tuple[int, str]:
    """A program's exit code and all that it said; -1 where it is not there or hangs."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError:
        return -1, ""
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, ""
    code = process.returncode
    return (-1 if code is None else code), output.decode(errors="replace")
