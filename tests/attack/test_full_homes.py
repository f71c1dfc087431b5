"""Commands in homes whose disk is full, has no inodes left, or is read-only, or whose quota is used
up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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

disk, kind, state = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
home = disk / "home"
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

if state != "new":
    place_old_home("c44bf393", home)
    call("runs")
if state == "ticked":
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
print(json.dumps({words: call(*words.split()) for words in json.loads(sys.argv[4])}))
"""
_REPOSITORY = Path(__file__).parents[2]
_READS = ("runs", "status held", "overview", "doctor", "logs trained", "metrics trained", "hosts")
_COMMANDS = (
    *_READS,
    "costs",
    "alerts list",
    "wait held --timeout 5",
    "stop held",
    "tick",
    "launch no-such-spec.yaml",
)
_OF_A_NEW_HOME = ("doctor", "runs", "overview", "wait --timeout 5", "tick", "stop held")
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
    found = _answers(tmp_path, kind, ticked, _COMMANDS)
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
    for name in (*_READS[:3], "metrics trained", "logs trained", "wait held --timeout 5"):
        assert "Not brought up to date" in said[name] and reason in said[name], said[name]
    _check_doctor(found, kind)
    # The reserve is given up: what ends things is recorded, where anything can be.
    assert found["stop held"]["code"] == 0, said["stop held"]
    if kind == "ro":
        assert code in said["tick"] and reason in said["tick"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["full", *at_length("inodes", "ro")])
def test_a_new_home_that_can_not_be_made_is_read_as_empty_and_says_why(
    tmp_path: Path, kind: str
) -> None:
    answers = _answers(tmp_path, kind, "new", _OF_A_NEW_HOME)
    code, reason = _REASONS[kind]
    for name in _OF_A_NEW_HOME[1:4]:
        text = json.dumps(answers[name])
        assert "Not brought up to date" in text and reason in text, text
    assert answers["runs"]["answer"]["runs"] == []
    assert "point TRAINMASTER_HOME elsewhere" in answers["overview"]["answer"]["next_step"]
    _check_doctor(answers, kind)
    for name in _OF_A_NEW_HOME[4:]:
        assert answers[name]["answer"]["error"]["code"] in (code, "RUN_NOT_FOUND"), answers[name]


def _check_doctor(answers: dict[str, Any], kind: str) -> None:
    code, reason = _REASONS[kind]
    doctor = {row["name"]: row for row in answers["doctor"]["answer"]["checks"]}
    assert doctor["home's disk"]["state"] == "fail"
    assert code in doctor["home's disk"]["found"] and reason in doctor["home's disk"]["found"]


def _answers(tmp_path: Path, kind: str, state: str, commands: Sequence[str]) -> dict[str, Any]:
    """What the commands answer where the home's disk is of that kind."""
    script = tmp_path / "full.py"
    script.write_text(_SCRIPT)
    disk = tmp_path / "disk"
    disk.mkdir()
    disk_48 = mounts_disk(48, by_quota=kind == "quota", inodes=2000)
    mount = f'{disk_48} && shift && exec "$@"'
    command = [sys.executable, str(script), str(disk), kind, state, json.dumps(commands)]
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
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers
