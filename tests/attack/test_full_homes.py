"""Commands in homes whose disk is full, has no inodes left, or is read-only, or whose quota is used
up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.attack.small_disk import mounts_disk
from support.session.tiers import at_length

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk"),
]

_SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path
from support.store.old_homes import place_old_home
from trainmaster.sync.workspace import open_workspace
from trainmaster.store.reserve import keep_reserve

disk, kind, ticked = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "ticked"
home = disk / "home"
place_old_home("c44bf393", home)
environment = {**os.environ, "TRAINMASTER_HOME": str(home)}

def call(*words):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "trainmaster", *words, "--json"],
        env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = done.stdout + done.stderr
    return {"code": done.returncode, "answer": answer}

call("runs")
if ticked:
    with open_workspace(environment) as workspace:
        keep_reserve(workspace.home)
if kind in ("full", "quota"):
    with open(disk / "filler", "wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass
elif kind == "inodes":
    (disk / "many").mkdir()
    try:
        for number in range(100_000):
            (disk / "many" / str(number)).touch()
    except OSError:
        pass
else:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
commands = [
    ["runs"], ["status", "held"], ["overview"], ["doctor"], ["logs", "trained"],
    ["metrics", "trained"], ["hosts"], ["costs"], ["alerts", "list"], ["stop", "held"], ["tick"],
    ["launch", "no-such-spec.yaml"],
]
print(json.dumps({" ".join(words): call(*words) for words in commands}))
"""
_REPOSITORY = Path(__file__).parents[2]
_READS = ("runs", "status held", "overview", "doctor", "logs trained", "metrics trained", "hosts")
_REASONS = {
    "full": ("DISK_FULL", "no space is left"),
    "quota": ("DISK_FULL", "Disk quota exceeded"),
    "inodes": ("NO_INODES", "no inodes are left"),
    "ro": ("ROOT_NOT_WRITABLE", "mounted read-only"),
}
_CASES = [(kind, ticked) for kind in _REASONS for ticked in ("ticked", "never ticked")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ticked"),
    [("full", "ticked"), *at_length(*(pair for pair in _CASES if pair != ("full", "ticked")))],
)
def test_a_home_that_takes_no_more_is_read_and_says_why_it_is_not_current(
    tmp_path: Path, kind: str, ticked: str
) -> None:
    script = tmp_path / "full.py"
    script.write_text(_SCRIPT)
    disk = tmp_path / "disk"
    disk.mkdir()
    disk_48 = mounts_disk(48, by_quota=kind == "quota", inodes=2000)
    mount = f'{disk_48} && shift && exec "$@"'
    command = [sys.executable, str(script), str(disk), kind, ticked]
    # With process numbers of its own: what a command left running ends with the test.
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*alone, "sh", "-c", mount, "sh", str(disk), *command],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": f"{_REPOSITORY}/server:{_REPOSITORY}:{_REPOSITORY}/tests",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    code, reason = _REASONS[kind]
    said = {name: json.dumps(one) for name, one in found.items()}
    assert not [name for name, text in said.items() if "INTERNAL" in text], said
    for name in _READS:
        assert found[name]["code"] == (1 if name == "doctor" else 0), found[name]
    runs = {run["name"]: run["state"] for run in found["runs"]["answer"]["runs"]}
    assert runs == {
        "done": "completed",
        "broken": "failed",
        "held": "stopped",
        "trained": "completed",
    }
    assert found["status held"]["answer"]["step"] == 56
    assert "val_loss" in said["metrics trained"]
    for name in ("runs", "status held", "overview", "metrics trained", "logs trained"):
        assert "Not brought up to date" in said[name] and reason in said[name], said[name]
    doctor = {row["name"]: row for row in found["doctor"]["answer"]["checks"]}
    assert doctor["home's disk"]["state"] == "fail"
    assert code in doctor["home's disk"]["found"] and reason in doctor["home's disk"]["found"]
    # The reserve is given up: what ends things is recorded, where anything can be.
    assert found["stop held"]["code"] == 0, said["stop held"]
    if kind == "ro":
        assert code in said["tick"] and reason in said["tick"]
