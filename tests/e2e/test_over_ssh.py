"""The main job on a host over SSH: links that break, hosts that reboot, networks that part.

`TRAINMASTER_FAULT_CUTS` sets how often links and processes are cut (6), `TRAINMASTER_FAULT_SEED`
how; both are printed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.backends.ssh_hosts import Network, Sshd
from support.runs.light_run import lasting, light_spec, standing
from support.runs.running_run import (
    LONGEST_S,
    CommandLine,
    kill,
    let_it_run,
    wait_until,
)
from support.sync.mirrors import assert_mirror_equals_the_host

CUTS = int(os.environ.get("TRAINMASTER_FAULT_CUTS", "6"))
SEED = int(os.environ.get("TRAINMASTER_FAULT_SEED", str(random.SystemRandom().randrange(10**6))))
PARTITION_S = float(os.environ.get("TRAINMASTER_FAULT_PARTITION_S", "12"))


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with Sshd(
        user=_who_may_run(sys.executable), shell="zsh", rc="echo Welcome to the host\n"
    ) as box:
        yield box


@pytest.fixture
def remote(home: Path, sshd: Sshd) -> CommandLine:
    """`trainmaster` in a home that knows the host as `gpu1`."""
    return added(CommandLine(home, "gpu1", sshd.home / "trainmaster"), sshd)


def added(command: CommandLine, sshd: Sshd, **changes: str) -> CommandLine:
    record = sshd.record(**changes)
    address = f"{record.user}@{record.address}:{record.port}"
    answer = command(
        "hosts", "add", "gpu1", address, "--key", str(record.key), "--root", record.root
    )
    assert answer["fingerprint"].startswith("SHA256:")
    return command


def test_a_host_over_ssh_does_what_this_machine_does_and_with_another_key_nothing_until_trusted(
    remote: CommandLine, tmp_path: Path, sshd: Sshd
) -> None:
    spec = light_spec(tmp_path, "--every", "50", steps="300", host="gpu1")
    run = remote("launch", spec)["run_id"]
    ended = remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"
    status = remote("status", run)
    assert (status["state"], status["step"], status["host"]) == ("completed", 300, "gpu1")
    loss = remote("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["steps"] == list(range(1, 301))
    assert remote("logs", run, "--limit", "5")["lines"]
    assert remote("checkpoints", run, "--verify")["resume_from"] == 300
    module = remote.folder(run).root / "trainer_runtime" / "__init__.py"
    assert module.stat().st_nlink > 1, "the host has the runtime, and it was sent again"

    sshd.rotate_host_key()
    refused = remote("launch", spec, code=1)["error"]
    assert refused["code"] == "HOST_KEY_CHANGED"
    assert "hosts trust gpu1" in refused["fix"]
    assert remote("status", run)["state"] == "completed"
    remote("hosts", "trust", "gpu1")

    assert remote("resume", run, "--set", "steps=400")["attempt"] == 2
    remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    fetched = tmp_path / "fetched"
    answer = remote("fetch", run, "latest", str(fetched))
    assert answer["files"] > 0 and list(fetched.rglob("manifest.json"))
    assert_mirror_equals_the_host(remote, run)
    assert remote("clean", run, "--yes")["freed_bytes"] > 0
    assert not remote.folder(run).root.exists()
    assert remote("status", run)["state"] == "completed"


@pytest.mark.long
def test_cut_links_and_killed_commands_lose_and_double_nothing(
    remote: CommandLine, tmp_path: Path, sshd: Sshd
) -> None:
    print(f"seed {SEED}, {CUTS} cuts")
    chosen = random.Random(SEED)
    steps = 50 * (CUTS + 4)
    spec = tmp_path / "spec.yaml"
    words = ("--every", "50", *lasting())
    spec.write_text(light_spec(tmp_path, *words, steps=str(steps), host="gpu1"))
    run = _launched_by_commands_that_are_killed(remote, spec, chosen)
    follower = remote.start("wait", run, "--timeout", str(LONGEST_S), "--json")
    for number in range(CUTS):
        let_it_run(chosen.uniform(0.2, 2.0))
        if number % 5 == 4:
            kill(follower.pid)
            follower.communicate()
            follower = remote.start("wait", run, "--timeout", str(LONGEST_S), "--json")
        else:
            sshd.drop_connections()
        assert len(_trainers(remote, run)) <= 1
    output, errors = follower.communicate(timeout=LONGEST_S + 30)
    assert follower.returncode == 0, (output, errors)
    loss = remote("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
    assert loss["steps"] == list(range(1, steps + 1))
    assert remote("status", run)["attempt"] == 1
    assert_mirror_equals_the_host(remote, run)


@pytest.mark.long
def test_a_run_is_found_where_it_lies_though_the_host_has_another_root_now(
    remote: CommandLine, tmp_path: Path, sshd: Sshd
) -> None:
    words = ("--every", "50", *lasting())
    run = remote("launch", light_spec(tmp_path, *words, steps="300", host="gpu1"))["run_id"]
    remote("wait", run, "--until", "step:20", "--timeout", str(LONGEST_S))
    windows = sshd.root / "windows"
    wait_until(lambda: list(windows.glob("*/*")), "a window on the log, on this host alone")
    assert remote("hosts", "remove", "gpu1", "--force")["abandoned"] == [run]
    added(remote, sshd, root=f"{sshd.home}/another")
    ended = remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
    assert ended["event"] == "completed"
    assert remote("checkpoints", run, "--verify")["resume_from"] == 300
    assert_mirror_equals_the_host(remote, run)
    assert remote("clean", run, "--yes")["freed_bytes"] > 0
    assert not remote.folder(run).root.exists()
    later = remote("launch", light_spec(tmp_path, steps="20", host="gpu1"))["run_id"]
    assert remote("status", later, "--detail")["folder"] == f"{sshd.home}/another/runs/{later}"


@pytest.mark.long
def test_a_reboot_ends_an_attempt_and_the_next_continues(home: Path, tmp_path: Path) -> None:
    with Sshd(pid_namespace=True) as sshd:
        remote = added(CommandLine(home, "gpu1", sshd.home / "trainmaster"), sshd)
        words = ("--every", "25", *standing(120))
        run = remote("launch", light_spec(tmp_path, *words, steps="160", host="gpu1"))["run_id"]
        remote("wait", run, "--until", "step:60", "--timeout", str(LONGEST_S))
        wait_until(lambda: _saved(remote, run) >= 50, "its checkpoint", LONGEST_S)
        sshd.reboot()
        ended = remote("wait", run, "--until", "completed", "--timeout", str(LONGEST_S))
        assert ended["event"] == "completed"
        first, second = remote("status", run, "--detail")["attempts"]
        assert first["reason"] == "reboot"
        assert second["started_at_step"] >= 50
        loss = remote("metrics", run, "--key", "loss", "--all")["runs"][run]["loss"]
        assert loss["steps"] == list(range(1, 161))
        assert_mirror_equals_the_host(remote, run)


@pytest.mark.long
def test_a_partition_changes_nothing_but_how_current_answers_are(
    home: Path, tmp_path: Path
) -> None:
    with Network() as network:
        space = network.add("gpu1")
        with Sshd(netns=space, address=network.address("gpu1"), port=22) as sshd:
            remote = added(CommandLine(home, "gpu1", sshd.home / "trainmaster"), sshd)
            words = ("--every", "200", *lasting())
            spec = light_spec(tmp_path, *words, steps="4000", host="gpu1")
            run = remote("launch", spec)["run_id"]
            before = remote("wait", run, "--until", "step:50", "--timeout", str(LONGEST_S))
            follower = remote.start("wait", run, "--timeout", str(LONGEST_S), "--json")
            network.partition("gpu1")
            let_it_run(PARTITION_S)
            during = remote("status", run)
            assert during["state"] in ("running", "lost")
            stopped = remote("stop", run)
            assert stopped["pending"] is True
            assert remote("status", run)["state"] in ("stopping", "lost")
            network.heal("gpu1")
            output, errors = follower.communicate(timeout=LONGEST_S + 30)
            assert json.loads(output)["event"] in ("stopped", "completed"), (output, errors)
            after = remote("status", run)
            assert after["step"] > before["step"]
            assert_mirror_equals_the_host(remote, run)


def _who_may_run(program: str) -> str:
    """An ordinary user, unless this checkout lies where only root may read."""
    ways = Path(program).resolve().parents
    return "trainer" if all(way.stat().st_mode & 0o001 for way in ways) else "root"


def _launched_by_commands_that_are_killed(
    remote: CommandLine, spec: Path, chosen: random.Random
) -> str:
    """Launch with one key again and again, each time killed a little later, until one answers."""
    longest_s = 0.4
    while True:
        launcher = remote.start("launch", str(spec), "--idempotency-key", "once", "--json")
        deadline = time.monotonic() + chosen.uniform(0.0, longest_s)
        while time.monotonic() < deadline and launcher.poll() is None:
            time.sleep(0.01)
        if launcher.poll() is None:
            kill(launcher.pid)
        output, _ = launcher.communicate()
        if launcher.returncode == 0:
            run: str = json.loads(output)["run_id"]
            assert [row["run_id"] for row in remote("runs")["runs"]] == [run]
            return run
        longest_s *= 1.3


def _saved(remote: CommandLine, run: str) -> int:
    """The step of the newest checkpoint that has been reported of."""
    reported = remote("status", run).get("checkpoint") or {}
    return int(reported.get("step", 0))


def _trainers(command: CommandLine, run: str) -> list[int]:
    """The pids of the processes that run the run's train.py."""
    root = command.folder(run).root.resolve()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if b"train.py" in words and Path(f"/proc/{name}/cwd").resolve() == root:
                found.append(int(name))
        except OSError:
            continue
    return found
