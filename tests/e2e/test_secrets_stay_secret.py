"""Runs that are given a secret, and print it: where it may stand afterwards, and where not."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.runs.light_run import lasting, light_spec
from support.runs.running_run import LONGEST_S, CommandLine, holding, small_spec, wait_until

pytestmark = pytest.mark.attack
# In no other test: the command lines of all processes are searched for it.
TOKEN = "hf_ZyXwVuTsRqPoNmLkJiHgFeDcBa9876543210"
MASKED = "*" * len(TOKEN)
# Comes before any trainer's own first line.
SITE = """\
import os, sys
if "train.py" in sys.orig_argv:
    print("the token is", os.environ.get("HF_TOKEN"), flush=True)
    BEHAVIOUR
"""

Launch = Callable[..., str]


@pytest.fixture
def command(home: Path) -> CommandLine:
    """Each command in a process of its own, whose command line is read, too."""
    return CommandLine(home, by_process=True)


@pytest.fixture
def launch(command: CommandLine, tmp_path: Path) -> Launch:
    """Launches a run with a secret, whose trainer prints it and does `behaviour` first."""
    command.home.mkdir(parents=True)
    (command.home / "settings.yaml").write_text("secrets: {allow: [HF_TOKEN]}")
    secrets = command.home / "secrets.env"
    secrets.touch(0o600)
    secrets.write_text(f"HF_TOKEN={TOKEN}\n")

    def run(behaviour: str = "pass", **changes: str) -> str:
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SITE.replace("BEHAVIOUR", behaviour))
        changes = {"env": f"{{PYTHONPATH: {site}}}", "secrets": "[HF_TOKEN]", **changes}
        spec = light_spec(tmp_path, "--every", "200", *lasting(), **changes)
        answer = command("launch", spec)
        run_id: str = answer["run_id"]
        return run_id

    return run


def in_command_lines() -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if TOKEN.encode() in command_line:
            found.append(command_line.decode())
    return found


@pytest.mark.long
def test_a_printed_secret_stands_in_the_boxs_own_log_alone(
    command: CommandLine, launch: Launch
) -> None:
    run = launch(steps="4000")
    folder = command.folder(run)
    command("wait", run, "--until", "step:20,end", "--timeout", str(LONGEST_S))
    places = (folder.secrets, command.home / "secrets" / f"{run}.json")
    assert [stat.S_IMODE(path.stat().st_mode) for path in places] == [0o600, 0o600]
    log = str(folder.attempt(1).train_log.relative_to(command.home))
    allowed = {str(path.relative_to(command.home)) for path in places} | {"secrets.env", log}
    assert set(holding(command.home, TOKEN.encode())) == allowed
    assert in_command_lines() == []
    assert f"the token is {MASKED}" in command("logs", run, "--limit", "1000")["lines"]

    command("stop", run)
    stopped = command("wait", run, "--until", "end", "--timeout", str(LONGEST_S))
    wait_until(lambda: not folder.secrets.exists(), "the host's copy is removed")
    mirrored = command.home / "mirror" / run / "p1" / "attempts/1/train.log"
    own = folder.attempt(1).train_log.read_bytes()
    assert mirrored.read_bytes() == own.replace(TOKEN.encode(), MASKED.encode())

    command("resume", run, "--set", f"steps={stopped['step'] + 10}")
    ended = command("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["state"] == "completed"
    assert f"the token is {TOKEN}" in folder.attempt(2).train_log.read_text()
    wait_until(lambda: not folder.secrets.exists(), "the host's copy is removed")
    kept = command.home / "secrets" / f"{run}.json"
    wait_until(lambda: command("tick") and not kept.exists(), "our copy is removed")
    both = {log, log.replace("attempts/1", "attempts/2"), "secrets.env"}
    assert set(holding(command.home, TOKEN.encode())) == both

    there = command.home / "fetched"
    answer = command("fetch", run, "attempts/*/train.log", str(there))
    assert answer["files"] == 2
    assert (there / "attempts/1/train.log").read_bytes() == mirrored.read_bytes()
    assert holding(there, TOKEN.encode()) == []
    command("clean", run, "--yes")
    assert holding(command.home, TOKEN.encode()) == ["secrets.env"]


def test_what_a_failed_trainer_said_last_is_masked_wherever_it_is_reported(
    command: CommandLine, launch: Launch
) -> None:
    run = launch(
        behaviour="sys.stderr.write('no access with ' + os.environ['HF_TOKEN']); os._exit(1)"
    )
    command("wait", run, "--until", "failed", "--timeout", str(LONGEST_S))
    assert command("status", run)["evidence"] == [f"no access with {MASKED}"]
    folder = command.folder(run)
    assert MASKED in folder.journal.read_text()
    wait_until(lambda: MASKED in folder.status_page.read_text(), "the page reports of it")
    wait_until(lambda: not folder.secrets.exists(), "the host's copy is removed")
    log = str(folder.attempt(1).train_log.relative_to(folder.root))
    assert holding(folder.root, TOKEN.encode()) == [log]


@pytest.mark.parametrize(
    ("settings", "secrets", "code"),
    [
        ("secrets: {allow: []}", f"HF_TOKEN={TOKEN}", "SECRET_NOT_ALLOWED"),
        ("secrets: {allow: [HF_TOKEN]}", "", "SECRET_MISSING"),
        ("secrets: {allow: [HF_TOKEN]}", "HF_TOKEN=abc", "SECRET_INVALID"),
        ("secrets: {alow: [HF_TOKEN]}", f"HF_TOKEN={TOKEN}", "SETTINGS_NOT_READABLE"),
    ],
)
def test_a_secret_that_can_not_be_given_stops_plan_and_launch_before_anything(
    home: Path, tmp_path: Path, settings: str, secrets: str, code: str
) -> None:
    command = CommandLine(home)
    command.home.mkdir(parents=True)
    (command.home / "settings.yaml").write_text(settings)
    path = command.home / "secrets.env"
    path.touch(0o600)
    path.write_text(secrets)
    command.environment["HF_HOME"] = str(tmp_path)
    spec = small_spec(tmp_path, host="debug", secrets="[HF_TOKEN]")
    for action in ("plan", "launch"):
        error = command(action, spec, code=1)["error"]
        assert error["code"] == code
        assert TOKEN not in str(error)
    assert command("runs")["runs"] == []
    assert not (command.home / "secrets").exists()
    assert not list((command.home / "debug").glob("runs/*"))
