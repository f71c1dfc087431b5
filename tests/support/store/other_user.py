"""Another user of this machine: `nobody`, in a process of its own."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Tries each path in every way there is; prints `[way, path]` of what succeeded.
_TRIES = """\
import fcntl, json, os, sys
paths, user, group = json.load(sys.stdin)
os.setgroups([])
os.setgid(group)
os.setuid(user)
done = []
def tried(way, path, call):
    try:
        call()
        done.append([way, path])
    except OSError:
        pass
def locked(path):
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
for path in paths:
    tried("listed", path, lambda: os.listdir(path))
    tried("read", path, lambda: open(path, "rb").read(1))
    tried("written", path, lambda: os.close(os.open(path, os.O_WRONLY)))
    tried("locked", path, lambda: locked(path))
    tried("replaced", path, lambda: os.rename(path, path + ".taken"))
    tried("linked", path, lambda: os.link(path, "/tmp/linked-by-another-user"))
    tried("created", path, lambda: os.close(os.open(path + ".new", os.O_WRONLY | os.O_CREAT)))
    tried("attributes", path, lambda: os.utime(path))
print(json.dumps(done))
"""


def other_user_id() -> int:
    return pwd.getpwnam("nobody").pw_uid


def what_another_user_may_do(paths: Sequence[Path]) -> list[list[str]]:
    """`[way, path]` of everything that `nobody` can do with these."""
    nobody = pwd.getpwnam("nobody")
    asked = [str(path) for path in paths], nobody.pw_uid, nobody.pw_gid
    done = subprocess.run(
        [sys.executable, "-c", _TRIES],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd="/",
        check=True,
        timeout=120,
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found
